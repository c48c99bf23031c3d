"""Capping, timeout errors, and timeouts for servers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import AmbiguousTimeout, UnambiguousTimeout
from redrive.orchestrator import Request, RetryReason, WaitDecision, cap, server_timeout, timed_out

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        (None, WaitDecision(SECOND, expires=False)),
        (2.0, WaitDecision(SECOND, expires=False)),
        (1.0, WaitDecision(SECOND, expires=True)),
        (0.5, WaitDecision(SECOND / 2, expires=True)),
        (0.0003, WaitDecision(timedelta(microseconds=300), expires=True)),
        (0.0, WaitDecision(SECOND * 0, expires=True)),
        (-3.0, WaitDecision(SECOND * 0, expires=True)),
    ],
)
def test_a_wait_ends_at_the_deadline(remaining, expected):
    """Delays are cut to the remaining time, at least to zero; after a cut nothing is sent."""
    assert expected == cap(SECOND, remaining)


@given(st.timedeltas(timedelta(0), timedelta(days=1)), st.none() | st.floats(-10, 10))
def test_law_no_wait_goes_past_the_deadline(delay, remaining):
    """Waits are never longer than the delay or the remaining time, and shorter only if they expire."""
    wait = cap(delay, remaining)
    assert timedelta(0) <= wait.delay <= delay
    assert remaining is None or wait.delay.total_seconds() <= max(0.0, remaining) + 1e-6
    assert wait.expires or wait.delay == delay


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {},
            AmbiguousTimeout,
            "upsert timed out after 2ms, after 1 retry (KV_LOCKED); it is unknown whether it took effect",
        ),
        (
            {"read_only": True},
            UnambiguousTimeout,
            "upsert timed out after 2ms, after 1 retry (KV_LOCKED); it changes nothing",
        ),
    ],
)
def test_a_timeout_error_has_its_facts(clock, options, kind, text):
    """Timeout errors contain duration, retries and effect, and are a `TimeoutError`."""
    request, cause = Request("upsert", **options), OSError("locked")
    request.attempt.fail(RetryReason.KV_LOCKED, cause)
    request.record_retry(RetryReason.KV_LOCKED, SECOND)
    request.begin_next().dispatch()
    clock.advance(0.002)
    error = timed_out(request)
    assert (kind, text, cause, True) == (type(error), str(error), error.__cause__, isinstance(error, TimeoutError))


@pytest.mark.usefixtures("clock")
def test_an_unsent_mutation_times_out_as_unambiguous():
    """Mutations that were never sent time out as unambiguous."""
    assert "upsert timed out after 0s, without a retry; it did not take effect" == str(timed_out(Request("upsert")))


@pytest.mark.parametrize(("timeout", "expected"), [("10s", 9.0), ("2s", 1.8), ("1s", 1.5), (0, 1.5)])
def test_a_server_gets_less_time_than_a_client(timeout, expected):
    """Servers get 90 % of the time, and not less than 1.5 s."""
    assert expected == server_timeout(timeout).total_seconds()
