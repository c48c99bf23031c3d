"""Circuit breakers with a memory, and the permits of their calls."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import CircuitOpen
from redrive.orchestrator import BreakerSettings, BreakerStatus, CircuitBreaker, Request
from redrive.retrying.circuit_breaker import is_timeout

ONE = BreakerSettings(volume_threshold=1, sleep_window="1s")


def opened(clock, settings=ONE):
    """Return a breaker that has just opened."""
    breaker = CircuitBreaker(settings, clock=clock)
    breaker.admit().failed()
    return breaker


def test_timeouts_count(clock):
    """By default a timeout is a failure of the endpoint, and a refusal or a broken connection is none."""
    assert [True, False, False] == [is_timeout(error) for error in (TimeoutError(), ConnectionResetError(), KeyError())]


def test_a_breaker_goes_through_all_states(clock):
    """Closed, open, half open, and closed again, by the clock in force."""
    breaker = CircuitBreaker(ONE)
    statuses = [breaker.status]
    breaker.admit().failed()
    statuses.append(breaker.status)
    clock.advance(1.1)
    canary = breaker.admit()
    statuses.append(breaker.status)
    canary.succeeded()
    assert [BreakerStatus.CLOSED, BreakerStatus.OPEN, BreakerStatus.HALF_OPEN, BreakerStatus.CLOSED] == [
        *statuses,
        breaker.status,
    ]
    assert True is canary.is_canary


def test_a_permit_reports_once(clock):
    """Second reports by one permit change nothing."""
    breaker = CircuitBreaker(BreakerSettings(volume_threshold=2), clock=clock)
    permit = breaker.admit()
    permit.failed()
    permit.failed()
    assert BreakerStatus.CLOSED is breaker.status


@pytest.mark.parametrize(
    ("error", "answered", "counts"),
    [
        (None, True, (1, 0)),
        (TimeoutError(), False, (0, 1)),
        (TimeoutError(), True, (0, 1)),
        (KeyError("locked"), True, (1, 0)),
        (ConnectionResetError(), False, (0, 0)),
        (asyncio.CancelledError(), False, (0, 0)),
    ],
    ids=repr,
)
def test_outcomes_of_calls_count_for_their_endpoint(clock, error, answered, counts):
    """Answers count as successes, timeouts as failures; other ends have no result."""
    breaker = CircuitBreaker(clock=clock)
    breaker.admit().settle(error, answered=answered)
    assert counts == (breaker._state.successes, breaker._state.failures)


def test_counted_failures_can_be_chosen(clock):
    """Clients can count broken connections as failures."""
    breaker = CircuitBreaker(ONE, counts=lambda error: isinstance(error, OSError), clock=clock)
    breaker.admit().settle(ConnectionResetError(), answered=False)
    assert BreakerStatus.OPEN is breaker.status


def test_a_refusal_has_the_time_until_the_next_canary(clock):
    """Refusals contain the time until the next canary."""
    breaker = opened(clock)
    clock.advance(0.4)
    with pytest.raises(CircuitOpen) as caught:
        breaker.admit()
    assert (0.600001, None) == (caught.value.retry_after.total_seconds(), caught.value.permit)


def test_a_probe_is_due_after_the_sleep(clock):
    """With probes the caller is refused, and the error has the permit for the probe."""
    breaker = opened(clock, ONE.with_(canary="probe"))
    clock.advance(1.1)
    with pytest.raises(CircuitOpen) as caught:
        breaker.admit()
    assert BreakerStatus.HALF_OPEN is breaker.status
    caught.value.permit.succeeded()
    assert BreakerStatus.CLOSED is breaker.status


def test_reset(clock):
    """After a reset the breaker is closed, and results of earlier calls do not count."""
    breaker = CircuitBreaker(ONE, clock=clock)
    permit = breaker.admit()
    breaker.reset()
    permit.failed()
    assert BreakerStatus.CLOSED is breaker.status


def test_an_attempt_asks_once(clock):
    """After two calls of `dispatch` an attempt has one permit; `undispatch` drops it."""
    breaker, request = CircuitBreaker(ONE, clock=clock), Request()
    request.bind(lambda endpoint: breaker.admit(), None)
    request.attempt.dispatch("node1")
    request.attempt.dispatch("node1")
    request.attempt.undispatch()
    assert (0, 0) == (breaker._state.successes, breaker._state.failures)
    request.attempt.dispatch("node1")
    request.fail(TimeoutError())
    assert BreakerStatus.OPEN is breaker.status
