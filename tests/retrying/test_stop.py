"""Tests of the event that ends the waits of calls, and of blocks that end with a rejected result."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import redrive
from redrive import Backoff, Policy
from redrive.errors import PolicyValueError
from redrive.testing import VirtualClock, using

LONG = Policy(on=ConnectionError, attempts=5, backoff=Backoff.constant("30s"), jitter="none", deadline=None)


def refuse() -> None:
    """Fail each time."""
    raise ConnectionError("refused")


async def arefuse() -> None:
    """Fail each time."""
    refuse()


def set_soon(stop: threading.Event) -> None:
    """Set an event from another thread, after the waits have begun."""
    threading.Timer(0.2, stop.set).start()


def test_an_event_ends_the_waits_of_threads():
    """Calls of several threads that wait end with their last error when the event is set, with a note."""
    stop = threading.Event()
    fetch = redrive.retry(LONG, stop=stop)(refuse)
    caught: list[Any] = []

    def run() -> None:
        try:
            fetch()
        except ConnectionError as error:
            caught.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    set_soon(stop)
    for thread in threads:
        thread.join()

    assert all(error.__retry__.elapsed < timedelta(seconds=10) for error in caught)
    assert [("stopped", 1)] * 3 == [(error.__retry__.rule, error.__retry__.attempts) for error in caught]
    assert "the stop event of the policy is set" in caught[0].__notes__[0]


def test_an_event_ends_awaited_waits():
    """Awaited waits end soon after the event is set."""
    stop = threading.Event()
    set_soon(stop)
    outcome = asyncio.run(LONG.with_(stop=stop).aoutcome(arefuse))

    assert outcome.record.elapsed < timedelta(seconds=10)
    assert ("stopped", "refused") == (outcome.rule, str(outcome.error))


@pytest.mark.parametrize("delay", [0, 30])
def test_no_retry_follows_a_set_event(delay: float):
    """Calls that fail while the event is set make one attempt; those that succeed are not affected."""
    stop = threading.Event()
    stop.set()
    policy = LONG.with_(backoff=Backoff.constant(delay), stop=stop)
    outcome = policy.outcome(refuse)

    assert ("stopped", 1) == (outcome.rule, outcome.record.attempts)
    assert 5 == policy.call(lambda: 5)


def test_a_wait_of_another_clock_ends_at_its_time():
    """Clocks of tests wait by themselves; the event is looked at after each wait, and calls without it go on."""
    stop, clock = threading.Event(), VirtualClock()
    with using(clock=clock):
        assert "attempts" == LONG.with_(stop=stop).outcome(refuse).rule
        sleep, clock.sleep = clock.sleep, lambda seconds: (sleep(seconds), stop.set())  # type: ignore[method-assign,assignment,func-returns-value]
        outcome = LONG.with_(stop=stop).outcome(refuse)

    assert ("stopped", 1) == (outcome.rule, outcome.record.attempts)


def test_an_event_ends_blocks_generators_and_overridden_calls():
    """Blocks, generators and calls under `override` obey the event."""
    stop = threading.Event()
    stop.set()
    attempts = iter(LONG.with_(stop=stop))
    attempt = next(attempts)
    with pytest.raises(ConnectionError), attempt:
        refuse()
    assert "stopped" == attempt.gave_up.rule

    @redrive.retry(LONG, stop=stop)
    def items():
        yield refuse()

    with pytest.raises(ConnectionError):
        next(items())
    fetch = redrive.retry(LONG)(refuse)
    with LONG.override(stop=stop), pytest.raises(ConnectionError):
        fetch()


def test_a_set_event_returns_a_rejected_result():
    """The last rejected result is returned when the event is set during the wait."""
    stop = threading.Event()
    set_soon(stop)
    outcome = LONG.with_(on_result=lambda result: result == 7, stop=stop).outcome(lambda: 7)

    assert ("stopped", 7) == (outcome.rule, outcome.value)


@pytest.mark.parametrize("value", [asyncio.Event(), True, "event"])
def test_other_objects_are_no_stop_event(value: object):
    """Objects that a thread cannot wait for are refused when the policy is made."""
    with pytest.raises(PolicyValueError, match="give a threading.Event, also in async code"):
        Policy(on=OSError, stop=value)


def test_a_combination_has_one_event():
    """Combinations take the event of either part, and refuse two."""
    stop = threading.Event()
    plain = Policy(on=OSError)

    assert (plain & plain.with_(stop=stop)).stop is stop
    assert (plain.with_(stop=stop) | plain).stop is stop
    with pytest.raises(PolicyValueError, match="give both the same"):
        plain.with_(stop=stop) & plain.with_(stop=threading.Event())


def test_events_are_not_stored():
    """Policies are stored without their event."""
    policy = LONG.with_(stop=threading.Event())

    assert policy.has_functions
    assert LONG == policy.without_functions() == Policy.from_dict(policy.to_dict())


@pytest.mark.parametrize(("results", "rule"), [([None, 42], None), ([None, None], "attempts")])
def test_a_block_shows_that_its_result_stayed_rejected(results: list[int | None], rule: str | None):
    """After a loop `attempt.gave_up` holds the decision that ended it, or None after a success."""
    policy = LONG.with_(attempts=2, backoff=Backoff.constant(0), on_result=lambda value: value is None)
    given = iter(results)
    for attempt in policy:
        with attempt:
            attempt.result = next(given)

    assert rule == (attempt.gave_up and attempt.gave_up.rule)


def test_a_block_of_tasks_shows_it_too():
    """`async for` blocks have the same attribute."""

    async def run() -> Any:
        async for attempt in LONG.with_(attempts=2, backoff=Backoff.constant(0), on_result=lambda value: value is None):
            with attempt:
                attempt.result = None
        return attempt.gave_up

    assert "attempts" == asyncio.run(run()).rule
