"""Calls that are retried while the interpreter ends, and in children that a fork makes in the middle of a call."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import redrive
import redrive.testing
from redrive.policy import Backoff, Policy
from redrive.policy.budget import ConcurrencyBudget
from redrive.retrying import BreakerSettings, Limiter, TokenBudget, breaker, budget, isolated
from redrive.retrying.context import finish_imports, roll
from redrive.retrying.state import is_refused
from tests.retrying.helpers import Busy, JumpingClock

AT_ONCE = Policy(on=(Busy, RuntimeError), attempts=3, backoff=Backoff.constant(0))

SCRIPT = """
import asyncio, atexit, contextlib, sys, threading
import redrive
from concurrent.futures import ThreadPoolExecutor
from redrive import Backoff, Policy
from redrive.retrying import TokenBudget, budget

budget("b", TokenBudget())
policy = Policy(on=Exception, attempts=3, backoff=Backoff.constant(0))
pool = ThreadPoolExecutor(1)

def show(what, error):
    print(what, type(error).__name__, error, error.__context__, flush=True)

def say(what, call):
    try:
        call()
    except BaseException as error:
        show(what, error)

def attempts(*steps):
    left = list(steps)
    def attempt():
        return left.pop(0)()
    return attempt

def fail():
    raise ConnectionError("real")

def submit():
    return pool.submit(fail).result()

def start():
    raise RuntimeError("can't start new thread")

async def to_thread():
    await asyncio.to_thread(fail)

def later():
    threading.main_thread().join()
    say("call", lambda: policy.call(attempts(fail, submit)))
    say("decorated", redrive.retry(policy)(attempts(fail, fail, start)))
    say("budget", lambda: policy.with_(budget="b").call(attempts(fail, start)))
    first = attempts(fail, lambda: None)
    async def call():
        first()
        await to_thread()
    async def report():
        try:
            await policy.acall(call)
        except BaseException as error:
            show("async", error)
    # On 3.12, asyncio.run() itself starts a thread, which closes its executor.
    with contextlib.suppress(RuntimeError):
        asyncio.run(report())
    say("first", lambda: policy.call(attempts(start, start, start)))

threading.Thread(target=later).start()

class Late:
    def __del__(self):
        say("decorated", redrive.retry(policy)(fail))
        say("call", lambda: policy.call(fail))
        say("budget", lambda: policy.with_(budget="b").call(fail))

import builtins
builtins.late = Late()
"""


def test_a_retry_while_the_interpreter_ends_raises_the_error_of_the_function():
    """Threads that cannot be started and modules that cannot be loaded do not replace the error of the function."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)

    assert [
        "call ConnectionError real None",
        "decorated ConnectionError real None",
        "budget ConnectionError real None",
        "async ConnectionError real None",
        "first RuntimeError can't start new thread None",
        "decorated ConnectionError real None",
        "call ConnectionError real None",
        "budget ConnectionError real None",
    ] == done.stdout.splitlines()


IN_A_WAIT = """
import asyncio, sys, threading
import redrive, redrive.testing
from concurrent.futures import ThreadPoolExecutor
from redrive import Backoff, Policy
from redrive.clock import SystemClock

class Ends(SystemClock):
    def sleep(self, seconds):
        threading.main_thread().join()

    async def asleep(self, seconds):
        threading.main_thread().join()

policy = Policy(on=Exception, attempts=3, backoff=Backoff.constant(1))
if sys.argv[2] == "observed":
    policy = policy.with_(on_retry=print)
pool = ThreadPoolExecutor(1)
calls = []

def fetch():
    calls.append(1)
    if len(calls) == 1:
        raise ConnectionError("real")
    return pool.submit(print).result()

async def afetch():
    fetch()

def block():
    for attempt in policy:
        with attempt:
            fetch()

async def ablock():
    async for attempt in policy:
        with attempt:
            fetch()

FORMS = {
    "call": lambda: policy.call(fetch),
    "decorated": redrive.retry(policy)(fetch),
    "outcome": lambda: policy.outcome(fetch).unwrap(),
    "block": block,
    "acall": lambda: asyncio.run(policy.acall(afetch)),
    "adecorated": lambda: asyncio.run(redrive.retry(policy)(afetch)()),
    "ablock": lambda: asyncio.run(ablock()),
}

def main():
    with redrive.testing.using(clock=Ends()):
        try:
            FORMS[sys.argv[1]]()
        except BaseException as error:
            print(type(error).__name__, error, len(calls), flush=True)

threading.Thread(target=main).start()
"""


@pytest.mark.parametrize("form", ["call", "decorated", "outcome", "block", "acall", "adecorated", "ablock"])
@pytest.mark.parametrize("how", ["quick", "observed"])
def test_an_end_of_the_interpreter_in_a_wait_raises_the_error_of_the_function(form, how):
    """The attempt after the wait cannot start a thread, and the error before the wait is raised."""
    command = [sys.executable, "-c", IN_A_WAIT, form, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert "ConnectionError real 2" == done.stdout.splitlines()[-1]


def test_a_wait_before_the_end_keeps_no_error():
    """A wait in the main thread keeps no error, and one in another thread drops it when it is over."""
    kept = []

    def fail():
        kept.append(redrive.retrying.context.SCOPE.get().call._kept)
        raise Busy

    policy = AT_ONCE.with_(backoff=Backoff.constant(1))
    with redrive.testing.using(clock=JumpingClock()):
        with pytest.raises(Busy):
            policy.call(fail)
        with pytest.raises(Busy):
            ThreadPoolExecutor(1).submit(contextvars.copy_context().run, policy.call, fail).result()

    assert [None] * 6 == kept


def test_a_thread_that_cannot_be_started_is_an_ordinary_error_before_the_end():
    """While the interpreter runs, such an error is retried and raised as any other."""
    error = RuntimeError("can't start new thread")

    def call():
        raise error

    with pytest.raises(RuntimeError) as caught:
        redrive.retry(AT_ONCE)(call)()
    assert (error, 3) == (caught.value, caught.value.__retry__.attempts)


def test_what_the_end_of_the_interpreter_refuses():
    """Only the errors of threads, executors and imports are those of the end."""
    errors = [
        RuntimeError("cannot schedule new futures after shutdown"),
        RuntimeError("odd"),
        ImportError("odd"),
        Busy(),
    ]

    assert [True, False, False, False] == [is_refused(each) for each in errors]


def in_child(function):
    """Return True if a function ends in the child of a fork."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    killer = threading.Timer(30, os.kill, (pid, 9))
    killer.start()
    _, status = os.waitpid(pid, 0)
    killer.cancel()
    return status == 0


def fail():
    """Fail."""
    raise Busy


@pytest.mark.parametrize("subject", ["budget", "breaker", "limiter", "registry"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_lock_that_another_thread_holds_is_free_in_the_child(subject):
    """The child of a fork does not wait for a thread that it does not have."""
    with isolated():
        shared = budget("b", TokenBudget())
        circuit = breaker("k", BreakerSettings(volume_threshold=10**6))
        limiter = Limiter(rate=10**9, concurrency=1)
        policy = AT_ONCE.with_(budget="b", breaker="k")
        owner = {"budget": shared, "breaker": circuit.circuit, "limiter": limiter}.get(subject)
        if owner is None:
            from redrive.retrying.shared import _BUDGETS as owner  # noqa: N811 - the registry

        held, done = threading.Event(), threading.Event()

        def hold():
            with owner._lock:
                held.set()
                done.wait()

        def work():
            policy.outcome(fail)
            limiter(int)()
            budget("other", TokenBudget())

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert in_child(work)
        finally:
            done.set()
            thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_places_and_retries_of_other_threads_are_free_in_the_child():
    """The calls of other threads do not exist in the child: their places are free, and those of its own count once."""
    limiter = Limiter(concurrency=1)
    with isolated():
        shared = budget("c", ConcurrencyBudget(floor=1))
        shared.begin(0.0)
        assert shared.spend(0.0, None, release=False)
        held, done = threading.Event(), threading.Event()

        def hold():
            with limiter:
                held.set()
                done.wait()

        def work():
            assert 7 == limiter(lambda: 7)()
            assert shared.spend(0.0, None, release=False)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(hold)
            held.wait()
            try:
                assert in_child(work)
            finally:
                done.set()

        def leave():
            limiter.__exit__(None, None, None)
            assert 1 == limiter._free

        limiter.__enter__()
        assert in_child(leave)
        limiter.__exit__(None, None, None)


def test_a_fork_waits_for_the_modules_of_failures(monkeypatch):
    """Before a fork in a program with threads, the modules that a failure loads are loaded."""
    loaded = []
    monkeypatch.setattr("redrive.retrying.context.importlib", SimpleNamespace(import_module=loaded.append))
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    finish_imports()
    assert [] == loaded

    monkeypatch.setattr(threading, "active_count", lambda: 2)
    finish_imports()
    assert "redrive.observe.logs" in loaded


LAST = """
import redrive, logging
logging.disable(50)

class Mine(Exception):
    pass

@redrive.retry(on=Mine, attempts=3, backoff=redrive.Backoff.constant(0))
def fail():
    raise Mine

class Late:
    def __del__(self, fail=fail):
        try:
            fail()
        except BaseException as error:
            print(type(error).__name__, error.__retry__.rule, flush=True)

late = Late()
"""


def test_a_first_failure_at_the_very_end_raises_the_users_error():
    """Where `random` cannot be loaded any more, the call retries without jitter."""
    done = subprocess.run([sys.executable, "-c", LAST], capture_output=True, text=True, check=True)

    assert ("Mine attempts\n", "") == (done.stdout, done.stderr)


def test_without_random_the_sample_is_zero(monkeypatch):
    """The interpreter may end before the first failure."""
    monkeypatch.setitem(sys.modules, "random", None)

    assert 0.0 == roll()
