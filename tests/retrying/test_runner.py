"""The verbs of a policy reach the layer above, in every process, and only when they are used."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from redrive.policy import Backoff, Policy
from redrive.retrying.runner import RUNNER
from redrive.seams import Seam, in_process


def python(code: str, *, data: bytes = b"") -> str:
    """Return the output of a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True).stdout.decode()


RETRYING = (*("cancellation", "context", "decorator", "loops", "own", "plan", "record", "rng", "state", "wrapper"),)
UNNEEDED = {
    *("asyncio", "concurrent", "dataclasses", "inspect", "linecache", "logging", "msgspec", "pathlib", "socket"),
    *("ssl", "subprocess", "tempfile", "threading", "traceback", "trio", "unittest", "urllib", "uuid"),
    *(f"redrive.policy.{name}" for name in ("algebra", "breaker", "budget", "codec", "compose", "explain", "ftl")),
    *(f"redrive.policy.{name}" for name in ("hedge", "hints", "overload")),
    "redrive.errors.durable",
}


def test_an_unpickled_policy_can_make_calls():
    """Unpickled policies make calls in a fresh process."""
    policy = Policy(on=OSError, attempts=3, backoff=Backoff.constant(0))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).call(len, 'abc'))"

    assert "3\n" == python(code, data=pickle.dumps(policy))


def test_a_policy_that_only_decides_loads_nothing_to_call_with():
    """Importing policies does not load the layer that carries out calls."""
    assert "False\n" == python("import redrive.policy, sys; print('redrive.retrying' in sys.modules)")


def test_a_sync_program_loads_no_event_loop():
    """Decorated sync functions load neither asyncio nor trio, also for retries, which only add logging."""
    code = """
import sys
before = set(sys.modules)
import redrive
calls = []
@redrive.retry("3 1ms", on=OSError)
def call():
    calls.append(1)
    if len(calls) < 3:
        raise OSError
call()
print(sorted({"asyncio", "trio", "inspect", "dataclasses", "msgspec"} & set(sys.modules) - before))
"""

    assert "[]\n" == python(code)


def test_a_simple_call_loads_few_modules():
    """Decorating a function and calling it once loads no module that other features need."""
    code = """
import sys
before = set(sys.modules)
import redrive
@redrive.retry("5 100ms 2s", on=OSError)
def call():
    return 1
call()
print(*sorted(set(sys.modules) - before))
"""
    loaded = set(python(code).split())

    assert {f"redrive.retrying.{name}" for name in RETRYING} == {
        name for name in loaded if name.startswith("redrive.retrying.")
    }
    assert {"redrive.observe", "redrive.observe.listeners"} == {
        name for name in loaded if name.startswith("redrive.observe")
    }
    assert set() == loaded & UNNEEDED
    assert {"clock", "errors", "observe", "policy", "retrying", "seams"} == {
        name.split(".")[1] for name in loaded if name.startswith("redrive.")
    }


def test_a_worker_loads_no_orchestrator():
    """Neither the app nor the worker imports the package of RFC 0049."""
    code = "import sys, redrive; redrive.App; import redrive.runtime.worker; print(*sys.modules)"

    assert [] == [name for name in python(code).split() if name.startswith("redrive.orchestrator")]


def test_the_seam_gives_the_runner():
    """Seams between policies and calls find their provider."""
    assert RUNNER is in_process()
    assert in_process() is in_process()


def test_a_seam_without_a_provider_is_named():
    """Seams without a provider fail with its name."""
    with pytest.raises(AttributeError, match="nobody"):
        Seam("redrive.retrying.runner:nobody")()
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        Seam("redrive.nowhere:nobody")()
