"""Tests of the switch for the whole process, and of hints of rejected results."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import redrive
from redrive import Backoff, Policy
from redrive.policy import Failure
from redrive.testing import VirtualClock, using


@pytest.fixture
def off() -> Iterator[None]:
    """Switch retries off during a test."""
    redrive.disable()
    yield
    redrive.enable()


@pytest.mark.usefixtures("off")
@pytest.mark.parametrize("fields", [{}, {"deadline": "5s"}], ids=["direct", "indirect"])
def test_threads_obey_the_switch_of_the_process(fields: dict[str, Any]):
    """After `redrive.disable()` every thread makes plain calls; `redrive.enable()` ends that."""
    calls = []

    @redrive.retry(on=ConnectionError, attempts=3, backoff=Backoff.constant(0), **fields)
    def fetch() -> None:
        calls.append(1)
        raise ConnectionError

    def run() -> None:
        with pytest.raises(ConnectionError):
            fetch()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert 1 == len(calls)
    redrive.enable()
    run()
    assert 4 == len(calls)


def test_the_environment_switches_retries_off():
    """With `REDRIVE_DISABLED=1` a program makes plain calls from its start."""
    code = (
        "import redrive\ncalls = []\n@redrive.retry(on=OSError)\ndef f():\n    calls.append(1)\n    raise OSError\n"
        "try:\n    f()\nexcept OSError:\n    print(len(calls))"
    )
    environment = {**os.environ, "REDRIVE_DISABLED": "1"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert "1\n" == result.stdout


@pytest.mark.parametrize(
    ("result", "hint"),
    [
        (SimpleNamespace(retry_after=5), 5),
        (SimpleNamespace(headers={"Retry-After": "20"}), 20),
        (
            SimpleNamespace(
                headers={"Retry-After": "Thu, 01 Jan 2026 00:10:30 GMT", "Date": "Thu, 01 Jan 2026 00:10:00 GMT"}
            ),
            30,
        ),
        (SimpleNamespace(headers={"Retry-After": "Thu, 01 Jan 2026 00:10:30 GMT"}), None),
        (SimpleNamespace(headers={"Retry-After": "soon"}), None),
        (SimpleNamespace(headers={"Retry-After": 5}), None),
        (SimpleNamespace(headers="Retry-After: 5"), None),
        (7, None),
    ],
)
def test_rejected_results_carry_hints(result: object, hint: int | None):
    """The hint of a rejected result is its attribute or its `Retry-After`, and a lower bound of the wait."""
    failure = Failure.of_result(result)

    assert (None if hint is None else timedelta(seconds=hint)) == failure.hint


def test_the_hint_of_a_result_is_waited_for():
    """Calls with a result that is rejected with a `Retry-After` wait that long."""
    answers = [SimpleNamespace(status=503, headers={"Retry-After": "20"}), SimpleNamespace(status=200, headers={})]
    policy = Policy(on_result=lambda answer: answer.status == 503, backoff=Backoff.constant(0))

    with using(clock=VirtualClock()):
        outcome = policy.outcome(answers.pop, 0)

    assert (timedelta(seconds=20),) == outcome.record.delays
