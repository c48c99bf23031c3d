"""Endings are written in batches, kept until the store has taken them, and an odd one delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from redrive import App, Backoff, CatchRequest, Policy
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Released, Succeeded
from redrive.engine.records import Claim
from redrive.engine.settle import decide
from redrive.errors import StoreBusy, StoreError
from redrive.policy import Failure
from redrive.runtime import settler as module
from redrive.runtime.settler import Settler
from redrive.runtime.step_writer import StepWriter
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending, Settled
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, repeat, take

BOOM = Failed(Failure(("builtins.ValueError", "builtins.Exception"), "boom"))


class SettlerFixture:
    """A settler on a real store, with clocks and failures that the test controls."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.rests = VirtualClock()
        self.count, self.linger = 0, 0.25
        self.claim_again = asyncio.Event()
        self.batches: list[list[int]] = []
        self.answers: dict[int, Settled] = {}
        self.refuse: Callable[[Sequence[Ending]], Exception | None] = lambda endings: None
        self.steps = StepWriter(app, self.rests)
        self.settler = Settler(app, self.rests, self, self.steps)

    def settle(self, endings: Sequence[Ending], **options):
        """Run in place of the store operation."""
        refused = self.refuse(endings)
        if refused is not None:
            raise refused
        self.batches.append([ending.claim.id for ending in endings])
        return self.real(endings, **options)

    def settled(self, endings: Sequence[Ending], settled: Settled) -> None:
        """Record them."""
        self.answers |= {ending.claim.id: settled for ending in endings}

    async def until(self, *numbers: int) -> None:
        """Run the settler until these jobs are settled."""
        running = asyncio.create_task(repeat(self.settler.duty, self.rests))
        async with asyncio.timeout(PATIENCE):
            while not set(numbers) <= set(self.answers):
                await VirtualClock().asleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    real = staticmethod(leases.settle)


@pytest.fixture
def bench(app: App, monkeypatch: pytest.MonkeyPatch) -> SettlerFixture:
    """Return a settler on an app in memory."""
    bench = SettlerFixture(app)
    monkeypatch.setattr(leases, "settle", bench.settle)
    return bench


def claims(app: App, count: int, retry: str | Policy = "5 1s") -> tuple[Claim, ...]:
    """Claim as many jobs."""
    app.task(name="send", retry=retry)(lambda number: None).enqueue_many(range(count))
    return take(app, count)


def test_collected_outcomes_are_written_in_one_transaction(app: App, bench: SettlerFixture):
    """Three endings, one transaction."""
    for claim in claims(app, 3):
        bench.settler.put(Ending(claim, Succeeded(), 0.0))
    before = bench.settler.waiting
    asyncio.run(bench.until(1, 2, 3))

    assert (3, 0) == (before, bench.settler.waiting)
    assert [[1, 2, 3]] == bench.batches
    assert 3 == app.jobs.stats().succeeded


def test_without_other_attempts_an_outcome_is_written_at_once(app: App, bench: SettlerFixture):
    """If no other attempt runs, the outcome is written at once."""
    (claim,) = claims(app, 1)
    bench.count = 1
    bench.settler.put(Ending(claim, Succeeded(), 0.0))
    asyncio.run(bench.until(1))

    assert 0 == bench.rests.monotonic()


def test_while_other_attempts_run_their_outcomes_are_collected(app: App, bench: SettlerFixture):
    """While other attempts run, an outcome that arrives a moment later joins the batch."""
    first, second = claims(app, 2)

    class Moment(VirtualClock):
        """The moment for which the settler lingers; the other attempt ends in it."""

        async def asleep(self, seconds: float) -> None:
            """Let the other attempt end."""
            bench.settler.put(Ending(second, Succeeded(), 0.0))
            await super().asleep(seconds)

    bench.count = 2
    moment = Moment()
    bench.settler._clock = moment
    bench.settler.put(Ending(first, Succeeded(), 0.0))
    asyncio.run(bench.until(1, 2))

    assert [[1, 2]] == bench.batches
    assert bench.linger == moment.monotonic()


def test_a_batch_has_a_limit(app: App, bench: SettlerFixture, monkeypatch: pytest.MonkeyPatch):
    """Outcomes beyond the limit go into the next batch; a full batch does not wait."""
    monkeypatch.setattr(module, "BATCH", 2)
    bench.count = 100
    for claim in claims(app, 4):
        bench.settler.put(Ending(claim, Succeeded(), 0.0))
    asyncio.run(bench.until(1, 2, 3, 4))

    assert ([[1, 2], [3, 4]], 0) == (bench.batches, bench.rests.monotonic())


def test_outcomes_are_kept_while_the_store_is_busy(app: App, bench: SettlerFixture):
    """Retry the writes with growing rests, without a loss."""
    refusals = [StoreBusy(), StoreBusy(), StoreBusy()]
    bench.refuse = lambda endings: refusals.pop() if refusals else None
    for claim in claims(app, 2):
        bench.settler.put(Ending(claim, Succeeded(), 0.0))
    asyncio.run(bench.until(1, 2))

    assert [[1, 2]] == bench.batches
    assert pytest.approx(0.1 + 0.2 + 0.4) == bench.rests.monotonic()
    assert 2 == app.jobs.stats().succeeded


def test_an_undecidable_outcome_delays_no_other(app: App, bench: SettlerFixture):
    """If a batch fails, its outcomes are written one by one; the bad one is retried until the store takes it."""
    refusals = 10
    order: list[int] = []

    def refuse(endings: Sequence[Ending]) -> Exception | None:
        nonlocal refusals
        odd = any(ending.claim.id == 2 for ending in endings)
        if odd and refusals:
            refusals -= 1
            return StoreError("the row is odd")
        order.extend(ending.claim.id for ending in endings)
        return None

    bench.refuse = refuse
    for claim in claims(app, 3):
        bench.settler.put(Ending(claim, Succeeded(), 0.0))
    asyncio.run(bench.until(1, 2, 3))

    assert ([1, 3, 2], 0) == (order, refusals)
    assert (3, 0) == (app.jobs.stats().succeeded, bench.settler.waiting)


def test_an_outcome_that_is_set_aside_is_still_waited_for(app: App, bench: SettlerFixture):
    """Graceful shutdowns wait for an outcome that is set aside; immediate ones do not."""

    async def cut_off() -> None:
        """End the settler while one is set aside."""
        running = asyncio.create_task(repeat(bench.settler.duty, bench.rests))
        async with asyncio.timeout(PATIENCE):
            while bench.settler.waiting != 1 or 3 not in bench.answers:
                await VirtualClock().asleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bench.settler.close()

    bench.refuse = lambda endings: StoreError() if any(ending.claim.id == 2 for ending in endings) else None
    for claim in claims(app, 3):
        bench.settler.put(Ending(claim, Succeeded(), 0.0))
    asyncio.run(cut_off())

    assert (2, 1) == (app.jobs.stats().succeeded, app.jobs.stats().running)


TARIFF = {"known": True}


def tariff(retry: int) -> float:
    """Return a delay, or raise at a bad time."""
    if not TARIFF["known"]:
        raise LookupError("no such tariff")
    return 1.0


Backoff.register("tests.settler.tariff", tariff)


def test_an_undecidable_outcome_ends_the_job(app: App, bench: SettlerFixture):
    """If a backoff function of the user raises, only its own job fails, with that error."""
    TARIFF["known"] = True
    (odd,) = claims(app, 1, Policy(attempts=5, backoff=Backoff.named("tests.settler.tariff"), jitter="none"))
    TARIFF["known"] = False
    app.task(name="healthy")(lambda: None).enqueue()
    (healthy,) = take(app)
    bench.settler.put(Ending(odd, BOOM, 0.0))
    bench.settler.put(Ending(healthy, Succeeded(), 0.0))
    asyncio.run(bench.until(1, 2))
    record = app.job(1).record

    assert ("dead", "succeeded") == (record.state, app.job(2).state)
    assert "the decision about this attempt failed: LookupError: no such tariff" == record.error


def test_an_undecidable_catch_job_runs_again(app: App, bench: SettlerFixture):
    """Catch jobs do not die of a failure, so an undecidable one runs again after a while."""
    TARIFF["known"] = True
    app.task(name="catches")(_catches)
    policy = Policy(attempts=1, catch="catches", backoff=Backoff.named("tests.settler.tariff"), jitter="none")
    (dead,) = claims(app, 1, policy)
    app.store.run(SettlerFixture.real([Ending(dead, BOOM, 0.0)], now=app.now()))
    (catching,) = take(app)
    TARIFF["known"] = False
    bench.settler.put(Ending(catching, BOOM, 0.0))
    asyncio.run(bench.until(catching.id))
    record = app.job(catching.id).record

    assert ("ready", app.clock.now() + timedelta(minutes=1), 1) == (
        record.state,
        record.scheduled_at,
        record.failures,
    )
    assert "the decision about this attempt failed: LookupError: no such tariff" == record.error
    assert "in tariff\n" in (app.job(catching.id).attempts[0].traceback or "")


def _catches(request: CatchRequest) -> None:
    """Catch."""


def test_ends_that_must_not_be_lost_are_written_again(app: App, bench: SettlerFixture):
    """Write what is lost with its server; where a transaction of the handler is lost, too, the attempt is."""
    app.task(name="pay", idempotent=False)(lambda number: None).enqueue_many(range(3))
    plain, back, transacted = take(app, 3)
    written = decide(transacted, Succeeded(), app.now(), 0.0)
    for claim, outcome in ((plain, Succeeded()), (back, Released("mine")), (transacted, Succeeded(written=written))):
        bench.settler.put(Ending(claim, outcome, 0.0))
    asyncio.run(bench.until(1, 2, 3))
    before = [app.job(number).state for number in (1, 2, 3)]
    asyncio.run(bench.settler.write_again())
    lost = app.job(3)

    assert [State.SUCCEEDED, State.READY, State.RUNNING] == before
    assert [State.SUCCEEDED, State.READY, State.DEAD] == [app.job(number).state for number in (1, 2, 3)]
    assert "LOST_IN_FLIGHT" == lost.record.reason
    assert "lacks the transaction in which its handler had succeeded" in lost.attempts[0].error


def test_an_outcome_under_a_lost_lease_changes_nothing(app: App, bench: SettlerFixture):
    """Return the leases that were not current."""
    (claim,) = claims(app, 1)
    app.job(claim.id).cancel()
    bench.settler.put(Ending(claim, Succeeded(), 0.0))
    asyncio.run(bench.until(claim.id))

    assert frozenset({claim.lease_id}) == bench.answers[claim.id].lost
    assert "cancelled" == app.job(claim.id).state
