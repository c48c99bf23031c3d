"""Cancellations that an attempt turns into another error, and calls that fail without waiting."""

from __future__ import annotations

import asyncio
import contextlib

import anyio
import anyio.lowlevel
import pytest
import trio

import redrive
from redrive.clock import in_trio
from redrive.orchestrator import Orchestrator, Request
from redrive.policy import Backoff, Policy
from redrive.policy.failure import forbidden_by
from redrive.retrying import Hedge, cancellation
from redrive.retrying.cancellation import latest_cancellation
from tests.retrying.helpers import Busy

POLICY = Policy(on=Busy, attempts=5, deadline=None, backoff=Backoff.constant(0), idempotent=True)


class Driver:
    """A client that is busy for ever, and whose cleanup replaces a cancellation."""

    def __init__(self, how="finally") -> None:
        self.calls = 0
        self.how = how
        self.waits = asyncio.Event()

    async def __call__(self):
        """Wait until the task is cancelled."""
        self.calls += 1
        self.waits.set()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            if self.how == "except":
                raise Busy("closed") from None
            if self.how == "twice":
                await self.flush(error)
            raise
        finally:
            if self.how == "finally":
                await self.flush()

    async def flush(self, cause=None):
        """Fail as a connection that is closed."""
        raise Busy("closed") from cause


async def block(policy, function):
    """Call a function in a block."""
    async for attempt in policy:
        with attempt:
            await function()


async def own_block(policy, function):
    """Replace the cancellation in the frame of the block."""
    async for attempt in policy:
        with attempt:
            try:
                await function()
            except asyncio.CancelledError:
                raise Busy from None


async def generator(policy, function):
    """Iterate over a generator that calls a function."""

    @redrive.retry(policy)
    async def items():
        yield await function()

    return [item async for item in items()]


async def orchestrated(_, function):
    """Send a request by an orchestrator."""

    async def send(request, attempt):
        await function()

    orchestrator = Orchestrator(classify=lambda request, error: "UNKNOWN" if isinstance(error, Busy) else None)
    return await orchestrator.run(Request("get", idempotent=True), send)


async def given(error):
    """Await a classifier that is a coroutine function."""
    return isinstance(error, Busy)


FORMS = {
    "decorated": lambda policy, function: redrive.retry(policy)(function_of(function))(),
    "prepared": lambda policy, function: redrive.retry(policy.with_(attempt_timeout="1h"))(function_of(function))(),
    "acall": lambda policy, function: policy.acall(function),
    "aoutcome": lambda policy, function: policy.aoutcome(function),
    "hedged": lambda policy, function: policy.with_(hedge=Hedge(after="1h")).acall(function),
    "classified": lambda policy, function: policy.with_(on=given).acall(function),
    "block": block,
    "own block": own_block,
    "generator": generator,
    "orchestrator": orchestrated,
}


def function_of(call):
    """Return a coroutine function that calls an object."""

    async def function():
        return await call()

    return function


async def cancelled(work, driver):
    """Cancel a task as soon as its driver waits, and return how it ended."""
    task = asyncio.ensure_future(work)
    await driver.waits.wait()
    task.cancel()
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else task.exception()


@pytest.mark.parametrize("how", ["finally", "except", "twice"])
@pytest.mark.parametrize("form", FORMS)
def test_a_cancellation_that_an_attempt_replaces_ends_the_call(form, how):
    """The call is cancelled after the attempt, in each form, as if the attempt had not replaced the cancellation."""

    async def main():
        driver = Driver(how)
        return await cancelled(FORMS[form](POLICY, driver), driver), driver.calls

    assert ("cancelled", 1) == asyncio.run(main())


@pytest.mark.parametrize("form", FORMS)
def test_a_timeout_around_a_call_comes_although_an_attempt_replaces_its_cancellation(form):
    """`asyncio.timeout` around a call raises `TimeoutError`."""

    async def main():
        driver = Driver()
        async with asyncio.timeout(None) as scope:
            asyncio.get_running_loop().call_soon(scope.reschedule, 0)
            await FORMS[form](POLICY, driver)

    with pytest.raises(TimeoutError):
        asyncio.run(main())


@pytest.mark.parametrize("library", ["asyncio", "trio"])
@pytest.mark.parametrize("form", ["decorated", "acall", "aoutcome", "block", "generator", "hedged"])
def test_a_scope_of_anyio_ends_a_call(form, library):
    """A cancel scope of anyio ends a call under both libraries, and catches its own cancellation."""

    async def main():
        driver = Driver()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await FORMS[form](POLICY, driver)
        return scope.cancelled_caught

    assert anyio.run(main, backend=library)


# -------------------------------------------------------------------------- without a cancellation in the chain


class Silent(Driver):
    """A client that catches a cancellation, and returns nothing or fails after its `except` clause."""

    async def __call__(self):
        """Wait until the task is cancelled."""
        self.calls += 1
        self.waits.set()
        # Not by anyio, whose own error the last wait would raise.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if self.how == "fails":
            raise Busy("closed")


POLLED = POLICY.with_(on_result=lambda result: result is None)


async def missing(result):
    """Reject a result, later."""
    return result is None


async def polled(policy, function):
    """Set the result of a block."""
    async for attempt in policy:
        with attempt:
            attempt.result = await function()


RESULT_FORMS = {
    **{form: FORMS[form] for form in ("decorated", "prepared", "acall", "aoutcome", "hedged")},
    "awaited predicate": lambda policy, function: policy.with_(on_result=missing).acall(function),
    "hook": lambda policy, function: policy.with_(on_retry=lambda _: None).acall(function),
    "block": polled,
    "prepared block": lambda policy, function: polled(policy.with_(attempt_timeout="1h"), function),
}


@pytest.fixture
def proof(monkeypatch):
    """Have task groups take back all their requests, as from Python 3.13 on."""
    monkeypatch.setattr(cancellation, "COUNT_IS_PROOF", True)


@pytest.mark.usefixtures("proof")
@pytest.mark.parametrize("form", RESULT_FORMS)
def test_a_cancellation_that_becomes_a_rejected_result_ends_the_call(form):
    """A result is not retried if the task was cancelled during its attempt."""

    async def main():
        driver = Silent()
        return await cancelled(RESULT_FORMS[form](POLLED, driver), driver), driver.calls

    assert ("cancelled", 1) == asyncio.run(main())


@pytest.mark.usefixtures("proof")
def test_a_timeout_around_a_call_comes_although_its_results_are_rejected():
    """`asyncio.timeout` around a call raises `TimeoutError`."""

    async def main():
        async with asyncio.timeout(None) as scope:
            asyncio.get_running_loop().call_soon(scope.reschedule, 0)
            await POLLED.acall(Silent())

    with pytest.raises(TimeoutError):
        asyncio.run(main())


@pytest.mark.usefixtures("proof")
def test_a_cancellation_that_becomes_an_accepted_result_is_that_of_the_attempt():
    """A result that is not retried is returned, as without a policy."""

    async def main():
        driver = Silent()
        return await cancelled(POLLED.with_(attempts=1).acall(driver), driver), driver.calls

    assert (None, 1) == asyncio.run(main())


@pytest.mark.usefixtures("proof")
def test_a_cancellation_that_becomes_a_rejected_result_has_the_word_of_the_callee():
    """The attempt was cut off: a call around it does not repeat what is declared not idempotent."""

    async def main():
        driver = Silent()
        task = asyncio.ensure_future(POLLED.with_(idempotent=False).acall(driver))
        await driver.waits.wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError) as found:
        asyncio.run(main())
    assert forbidden_by(found.value)


@pytest.mark.usefixtures("proof")
@pytest.mark.parametrize("library", ["asyncio", "trio"])
@pytest.mark.parametrize("form", RESULT_FORMS)
def test_a_scope_of_anyio_ends_a_call_whose_results_are_rejected(form, library):
    """The scope catches its own cancellation, which comes again at the next wait."""
    calls = []

    async def function():
        calls.append(1)
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()

    async def main():
        with anyio.CancelScope() as scope:
            if in_trio():
                scope.cancel()
            else:
                asyncio.get_running_loop().call_soon(scope.cancel)
            await RESULT_FORMS[form](POLLED, function)
        return scope.cancelled_caught

    assert (True, 1) == (anyio.run(main, backend=library), len(calls))


@pytest.mark.parametrize("form", ["decorated", "acall", "aoutcome", "block", "generator", "orchestrator"])
def test_a_later_attempt_that_fails_after_it_has_caught_a_cancellation(form, monkeypatch):
    """The requests that came during an attempt prove a cancellation, where task groups take back all of theirs."""
    monkeypatch.setattr(cancellation, "COUNT_IS_PROOF", True)

    async def main():
        driver = Silent("fails")

        async def function():
            if driver.calls != 1:
                driver.calls += 1
                raise Busy
            await driver()

        return await cancelled(FORMS[form](POLICY.with_(attempts=3), function), driver), driver.calls

    assert ("cancelled", 2) == asyncio.run(main())


@pytest.mark.parametrize("form", ["prepared", "hedged", "classified", "bounded block", "polled"])
def test_a_first_attempt_that_fails_after_it_has_caught_a_cancellation(form, monkeypatch):
    """Calls that have counted the requests before their first attempt notice that they have risen."""
    monkeypatch.setattr(cancellation, "COUNT_IS_PROOF", True)
    forms = {
        **FORMS,
        "bounded block": lambda policy, function: block(policy.with_(attempt_timeout="1h"), function),
        "polled": lambda policy, function: POLLED.acall(function),
    }

    async def main():
        driver = Silent("fails")
        return await cancelled(forms[form](POLICY, driver), driver), driver.calls

    assert ("cancelled", 1) == asyncio.run(main())


@pytest.mark.parametrize("form", [*RESULT_FORMS, "classified", "generator"])
@pytest.mark.parametrize("is_proof", [True, False])
def test_the_cleanup_after_a_caught_cancellation_is_retried(form, is_proof, monkeypatch):
    """A task that has caught its cancellation may call functions that are retried, for an error and for a result."""
    monkeypatch.setattr(cancellation, "COUNT_IS_PROOF", is_proof)
    calls = []

    async def flush():
        calls.append(1)
        if len(calls) == 1:
            raise Busy
        return None if len(calls) == 2 and form in RESULT_FORMS else "flushed"

    async def main():
        driver = Silent()

        async def work():
            await driver()
            await {**FORMS, **RESULT_FORMS}[form](POLLED if form in RESULT_FORMS else POLICY, flush)

        return await cancelled(work(), driver)

    assert not isinstance(asyncio.run(main()), Busy | str)
    assert (3 if form in RESULT_FORMS else 2) == len(calls)


@pytest.mark.parametrize("form", ["decorated", "prepared", "acall", "block", "generator", "classified"])
def test_a_task_group_whose_failure_the_attempt_has_handled_is_no_cancellation(form):
    """On Python 3.11 and 3.12 the group leaves a request behind, and the error that follows shows nothing of it."""
    calls = []

    async def fail():
        raise Busy

    async def function():
        calls.append(1)
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        raise Busy

    with pytest.raises(Busy):
        asyncio.run(FORMS[form](POLICY, function))
    assert 5 == len(calls)


@pytest.mark.parametrize("form", RESULT_FORMS)
def test_a_task_group_whose_failure_became_a_rejected_result_is_no_cancellation(form):
    """An attempt that handles the failure of its group, and returns a result that is rejected, is retried."""
    calls = []

    async def fail():
        raise Busy

    async def function():
        calls.append(1)
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        return "done" if len(calls) == 3 else None

    asyncio.run(RESULT_FORMS[form](POLLED, function))
    assert 3 == len(calls)


def test_what_an_error_shows_is_no_other_cancellation(monkeypatch):
    """A timeout of an old library takes back no request, and its error shows where it came from."""
    monkeypatch.setattr(cancellation, "COUNT_IS_PROOF", True)
    calls = []

    async def function():
        calls.append(1)
        asyncio.current_task().cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise TimeoutError from error

    with pytest.raises(TimeoutError):
        asyncio.run(FORMS["prepared"](POLICY.with_(on=TimeoutError), function))
    assert 5 == len(calls)


def test_a_cancellation_of_a_later_attempt_ends_the_call():
    """The attempts before it count as usual."""

    async def main():
        driver = Driver()

        async def function():
            if driver.calls == 2:
                await driver()
            driver.calls += 1
            raise Busy

        return await cancelled(POLICY.acall(function), driver), driver.calls

    assert ("cancelled", 3) == asyncio.run(main())


@pytest.mark.parametrize("form", ["decorated", "prepared", "acall", "block", "generator", "classified"])
@pytest.mark.parametrize("after", ["finally", "except"])
def test_the_cleanup_of_a_cancelled_task_is_retried(form, after):
    """A call that a cancelled task makes in its cleanup is retried: the cancellation came before it."""
    calls = []

    async def flush():
        calls.append(1)
        if len(calls) < 3:
            raise Busy

    async def main():
        waits = asyncio.Event()

        async def work():
            try:
                waits.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if after == "except":
                    await FORMS[form](POLICY, flush)
                raise
            finally:
                if after == "finally":
                    await FORMS[form](POLICY, flush)

        task = asyncio.ensure_future(work())
        await waits.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert (True, 3) == (asyncio.run(main()), len(calls))


@pytest.mark.parametrize("form", ["decorated", "prepared", "acall", "block", "generator"])
def test_timeouts_and_task_groups_inside_of_an_attempt_are_retried(form):
    """What an attempt cancels by itself is no cancellation of its call."""
    calls = []

    async def fail():
        raise Busy

    async def function():
        calls.append(1)
        if len(calls) % 2:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    async def main():
        await FORMS[form](POLICY.with_(on=(Busy, TimeoutError), attempts=4), function)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert 4 == len(calls)


def test_an_attempt_timeout_and_a_cancellation_at_once_end_the_call():
    """The cancellation comes first, also if the attempt replaces both."""

    async def main():
        driver = Driver()
        policy = POLICY.with_(on=(Busy, TimeoutError), attempt_timeout=1e-6)
        task = asyncio.ensure_future(policy.acall(driver))
        await driver.waits.wait()
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_an_attempt_of_trio_that_replaces_its_timeout_is_in_flight(run):
    """An error that comes after the timeout of the attempt is retried only if the call is idempotent."""

    async def main():
        driver = Driver()
        policy = POLICY.with_(attempt_timeout=1e-6, idempotent=False)
        with pytest.raises(Busy):
            await policy.acall(driver)
        return driver.calls

    assert 1 == run(main)


def test_an_error_without_a_cancellation_has_none():
    """A chain of contexts that ends in itself has no cancellation either."""
    one, two = Busy(1), Busy(2)
    one.__context__, two.__context__ = two, one

    assert latest_cancellation(one) is None


def test_a_coroutine_without_a_library_is_retried():
    """A coroutine that no library runs is retried."""
    calls = []

    async def function():
        calls.append(1)
        raise Busy

    coroutine = redrive.retry(POLICY)(function)()
    for _ in range(4):
        coroutine.send(None)
    with pytest.raises(Busy):
        coroutine.send(None)
    assert 5 == len(calls)


@pytest.mark.parametrize("form", ["decorated", "acall", "aoutcome", "block", "generator"])
def test_a_call_that_fails_without_waiting_lets_other_tasks_run(form, run):
    """Between two attempts without a wait other tasks have a turn."""
    turns = []

    async def fail():
        turns.append("attempt")
        raise Busy

    async def other():
        while True:
            turns.append("other")
            await anyio.lowlevel.checkpoint()

    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await anyio.lowlevel.checkpoint()
            with contextlib.suppress(Busy):
                await FORMS[form](POLICY, fail)
            group.cancel_scope.cancel()

    run(main)

    # Trio runs the tasks of a turn in any order.
    first, last = turns.index("attempt"), len(turns) - turns[::-1].index("attempt")
    assert 3 <= turns[first:last].count("other")


def test_trio_ends_a_call_that_fails_without_waiting():
    """A cancel scope of trio ends a call whose attempts never wait."""

    async def fail():
        assert in_trio()
        raise Busy

    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            await POLICY.with_(attempts=10**6).acall(fail)
        return scope.cancelled_caught

    assert trio.run(main)
