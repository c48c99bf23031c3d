"""Jobs behind an open circuit breaker: parked with a visible reason, and with no attempt spent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from redrive import App, CatchRequest, Snooze
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Released, Snoozed, Succeeded
from redrive.engine.records import Hold
from redrive.errors import GiveUp
from redrive.policy import Policy
from redrive.policy.breaker import BreakerSettings, BreakerStatus
from redrive.retrying import breaker
from redrive.retrying.context import using
from redrive.retrying.shared import SharedBreaker, isolated
from redrive.runtime.executor import Executor
from redrive.testing import VirtualClock, drain
from tests.runtime.helpers import PATIENCE, run_due, take

SETTINGS = BreakerSettings(volume_threshold=5, error_threshold=50, rolling_window="10s", sleep_window="60s")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test has breakers of its own."""
    with isolated():
        yield


@pytest.fixture
def stripe() -> SharedBreaker:
    """Return a breaker that opens after 5 failures in 10 s and cools down for 60 s."""
    return breaker("stripe", SETTINGS)


@pytest.fixture
def calls(app: App) -> list[float]:
    """Return the times of the calls, in seconds of the clock; the handler fails while the service is down."""
    begun: list[float] = []

    @app.task(retry=Policy.parse("2 1s").with_(breaker="stripe"))
    async def charge(heals_at: int) -> None:
        """Call the service, which is down until then."""
        assert isinstance(app.clock, VirtualClock)
        begun.append(app.clock.monotonic())
        if app.clock.monotonic() < heals_at:
            raise ConnectionError("no route to stripe")

    return begun


@pytest.mark.case("D12")
@pytest.mark.usefixtures("stripe")
def test_an_outage_burns_no_attempts(app: App, calls: list[float]):
    """Of 100 jobs with three attempts, during ten minutes of outage and after, one in a cool-down calls the service;
    the others are parked with attempts unchanged; when it heals, all succeed and none is dead."""
    charge = app.tasks["charge"]
    jobs = charge.enqueue_many([570] * 100)
    drain(app, within="30s")
    parked = [job.refresh().record for job in jobs]
    during = len(calls)
    drain(app, within="500s")
    probes = [at for at in calls[during:] if at < 570]
    drain(app)

    assert 5 == during
    held = [row for row in parked if row.hold is Hold.BREAKER]
    assert len(held) >= 95
    assert {(0, 0)} == {(row.attempt, row.failures) for row in held if row.id > 5}
    assert all("circuit breaker 'stripe' is open" in (row.note or "") for row in held)
    assert all(later - earlier >= 60 for earlier, later in pairwise(probes))
    assert 5 <= len(probes) <= 9
    assert {State.SUCCEEDED} == {job.refresh().state for job in jobs}


@pytest.mark.usefixtures("stripe", "calls")
def test_a_parked_job_shows_the_reason(app: App):
    """Jobs that their breaker holds back show this as their reason, with the minimum delay."""
    charge = app.tasks["charge"]
    jobs = charge.enqueue_many([999] * 6)
    drain(app, within="0s")

    assert "circuit open: due in 1m (the circuit breaker 'stripe' is open, for" in jobs[5].refresh().why


def test_a_refused_attempt_is_given_back(app: App, stripe: SharedBreaker, calls: list[float]):
    """While the breaker is open the handler is not called, and the job becomes due when a call is allowed again."""
    with using(clock=app.clock):
        for _ in range(5):
            stripe.circuit.admit().failed()
    app.tasks["charge"].enqueue(0)
    outcome = run_due(app)

    assert isinstance(outcome, Released)
    assert outcome.hold is Hold.BREAKER
    assert 59 < outcome.delay.total_seconds() <= 61
    assert [] == calls


@pytest.mark.usefixtures("calls")
def test_an_unregistered_breaker_parks_the_job(app: App):
    """Without a breaker of that name in this process, the job waits for a worker that has it, as for its task."""
    app.tasks["charge"].enqueue(0)
    outcome = run_due(app)

    assert isinstance(outcome, Released)
    assert (Hold.BREAKER, 15) == (outcome.hold, outcome.delay.total_seconds())
    assert "breaker='stripe' is not registered" in outcome.why


def outcomes(app: App, *errors: BaseException | None, retry: Policy) -> list[object]:
    """Run a job for each of these errors, under a policy, and return their outcomes."""
    waiting = list(errors)

    @app.task(retry=retry)
    async def work() -> None:
        """End as the next one should."""
        error = waiting.pop(0)
        if error is not None:
            raise error

    ended = []
    for _ in errors:
        work.enqueue()
        ended.append(run_due(app))
    return ended


def test_an_answer_is_no_failure_of_the_target(app: App, stripe: SharedBreaker):
    """Failures that the policy would not retry, because the target has answered, do not open the breaker."""
    retry = Policy(attempts=3, on=(ConnectionError,), breaker="stripe")
    ended = outcomes(app, *[ValueError("no")] * 9, *[GiveUp("no")] * 9, retry=retry)

    assert {Failed} == {type(each) for each in ended}
    assert BreakerStatus.CLOSED is stripe.circuit.status


def test_the_last_attempt_counts_as_well(app: App, stripe: SharedBreaker):
    """Count a failure whether or not the policy grants another attempt."""
    outcomes(app, *[ConnectionError("no")] * 5, retry=Policy(attempts=1, breaker="stripe"))

    assert BreakerStatus.OPEN is stripe.circuit.status


def test_a_breaker_may_define_what_counts(app: App):
    """If the breaker defines which errors are failures of the target, its definition decides."""
    own = breaker("own", SETTINGS, counts=lambda error: isinstance(error, KeyError))
    outcomes(app, *[ConnectionError("no")] * 9, retry=Policy(attempts=3, breaker="own"))

    assert BreakerStatus.CLOSED is own.circuit.status


def test_a_snooze_does_not_count(app: App, stripe: SharedBreaker):
    """Snoozes are neither successes nor failures: after a canary that snoozes, the next attempt is the canary."""
    assert isinstance(app.clock, VirtualClock)
    ended = outcomes(app, *[ConnectionError("no")] * 5, retry=Policy(attempts=1, breaker="stripe"))
    app.clock.advance("61s")

    @app.task(retry=Policy(attempts=1, breaker="stripe"))
    async def snoozes() -> None:
        """Ask for later."""
        raise Snooze("1h")

    snoozes.enqueue()
    snoozed = run_due(app)

    assert 5 == len(ended)
    assert isinstance(snoozed, Snoozed)
    with using(clock=app.clock):
        assert stripe.circuit.admit().is_canary


def test_a_success_of_the_canary_closes_the_breaker(app: App, stripe: SharedBreaker, calls: list[float]):
    """After the cool-down one attempt is let through; when it succeeds, the breaker closes for all."""
    assert isinstance(app.clock, VirtualClock)
    outcomes(app, *[ConnectionError("no")] * 5, retry=Policy(attempts=1, breaker="stripe"))
    app.clock.advance("61s")
    app.tasks["charge"].enqueue(0)

    assert Succeeded() == run_due(app)
    assert BreakerStatus.CLOSED is stripe.circuit.status
    assert 1 == len(calls)


def test_an_attempt_that_is_taken_away_gives_its_permit_back(app: App, stripe: SharedBreaker):
    """After the worker takes the slot from a canary, no attempt waits for it: the next one is the canary."""
    assert isinstance(app.clock, VirtualClock)
    outcomes(app, *[ConnectionError("no")] * 5, retry=Policy(attempts=1, breaker="stripe"))
    app.clock.advance("61s")

    started = asyncio.Event()

    @app.task(retry=Policy(attempts=1, breaker="stripe"))
    async def hangs() -> None:
        """Set the event, then hang."""
        started.set()
        await asyncio.Event().wait()

    hangs.enqueue()
    (claim,) = take(app)

    async def interrupt() -> None:
        """Let the canary start, and take its slot away."""
        running = asyncio.create_task(Executor(app, None).run(claim))
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupt())
    with using(clock=app.clock):
        assert stripe.circuit.admit().is_canary


def test_a_catch_does_not_wait_for_the_breaker_of_its_parent(app: App, stripe: SharedBreaker):
    """Catch jobs carry the policy of the dead job, but do not call the target of that job."""
    caught = []

    @app.task
    async def mend(request: CatchRequest[int]) -> None:
        """Take note."""
        caught.append(request.request)

    @app.task(retry=Policy(attempts=1, breaker="stripe", catch="mend"))
    async def fails(number: int) -> None:
        """Fail."""
        raise ConnectionError("no")

    fails.enqueue_many(range(5))
    drain(app, within="0s")

    assert BreakerStatus.OPEN is stripe.circuit.status
    assert [0, 1, 2, 3, 4] == sorted(caught)
