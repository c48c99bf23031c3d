"""Steps of running runs are written in batches, and each run receives what became of its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redrive import App
from redrive.engine.outcome import Released
from redrive.engine.records import Claim
from redrive.engine.runs import StepKind
from redrive.engine.steps import NewStep, StepBatch, StepsAnswer, StepsWritten
from redrive.errors import StoreBusy, StoreError
from redrive.runtime import step_writer as module
from redrive.runtime.settler import Settler
from redrive.runtime.step_writer import StepWriter
from redrive.stores.operations import admin
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.leases import Ending, Settled
from redrive.stores.operations.runs import start, steps
from redrive.stores.query import writes
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, repeat, take
from tests.stores.runs import run


class Bench:
    """A writer on a real store, with a clock and failures that the test controls."""

    def __init__(self, app: App) -> None:
        self.rests = VirtualClock()
        self.writer = StepWriter(app, self.rests)
        self.sizes: list[int] = []
        self.refusals: list[Exception] = []
        self.answers: list[list[StepsWritten]] = []

    @property
    def record(self):
        """The function in place of the store operation."""
        real = steps.record

        @writes
        def record(batches: Sequence[StepBatch], **options):
            """Refuse or answer as the test asks, or write."""
            self.sizes.append(len(batches))
            if self.refusals:
                raise self.refusals.pop()
            if self.answers:
                yield from ()
                return self.answers.pop()
            return (yield from real(batches, **options).steps)

        return record

    def written(self, *batches: StepBatch) -> list[StepsWritten | BaseException]:
        """Write rows while the writers run, and return the answers or errors."""

        async def write() -> list[StepsWritten | BaseException]:
            waiting = [self.writer.put(each) for each in batches]
            running = [asyncio.create_task(repeat(duty, self.rests)) for duty in self.writer.duties]
            try:
                async with asyncio.timeout(PATIENCE):
                    return list(await asyncio.gather(*waiting, return_exceptions=True))
            finally:
                await _ended(running)

        return asyncio.run(write())


async def _ended(running: Sequence[asyncio.Task[None]]) -> None:
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
def bench(app: App, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a writer on an app in memory."""
    bench = Bench(app)
    monkeypatch.setattr(steps, "record", bench.record)
    return bench


def run_of(app: App, name: str = "order-42") -> Claim:
    """Start a run, and claim it."""
    app.store.run(start.start([run(name)], now=app.now()))
    (claim,) = take(app)
    return claim


def step_of(claim: Claim, path: str = "1") -> StepBatch:
    """Return the row of a step."""
    return StepBatch(claim.id, claim.lease_id, (NewStep(path, StepKind.STEP, "charge", tries=1),))


def bad(claim: Claim) -> StepBatch:
    """Return a row that the database refuses."""
    return step_of(claim, "")


def recorded(app: App, name: str = "order-42") -> list[str]:
    """Return the paths of the recorded steps of a run."""
    return sorted(row.path for row in app.store.run(manage.timeline("checkout", name)).steps)


def test_steps_of_several_runs_are_one_transaction(app: App, bench: Bench):
    """Rows that have gathered are written together, without a rest."""
    claims = [run_of(app, name) for name in ("a", "b", "c")]
    answers = bench.written(*map(step_of, claims))

    assert [StepsAnswer.WRITTEN] * 3 == [each.answer for each in answers]
    assert ([3], 0, 0) == (bench.sizes, bench.writer.waiting, bench.rests.monotonic())


def test_of_many_steps_a_part_is_written_first(app: App, bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Batches have a limit, and two of them are under way at the same time."""
    monkeypatch.setattr(module, "BATCH", 2)
    claim = run_of(app)
    answers = bench.written(*(step_of(claim, str(number)) for number in range(1, 6)))

    assert {StepsAnswer.WRITTEN} == {each.answer for each in answers}
    assert [2, 2, 1] == bench.sizes


def test_rows_of_a_lost_run_are_answered_as_lost(app: App, bench: Bench):
    """Rows of a run that a second cancellation has ended are answered as lost, beside others that are written."""
    lost, mine = run_of(app, "a"), run_of(app, "b")
    for _ in range(2):
        app.store.run(admin.cancel(lost.id, now=app.now()))

    assert [StepsAnswer.LOST, StepsAnswer.WRITTEN] == [
        each.answer for each in bench.written(step_of(lost), step_of(mine))
    ]


def test_rows_of_a_locked_run_are_written_later(app: App, bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Rows of a run that another transaction has locked are written again, until they are written or lost."""
    monkeypatch.setattr(module, "LATER", 0.0)
    bench.answers = [[StepsWritten(StepsAnswer.LATER)]] * 2

    assert [StepsAnswer.WRITTEN] == [each.answer for each in bench.written(step_of(run_of(app)))]
    assert [1, 1, 1] == bench.sizes


def test_rows_wait_for_a_database_that_is_busy(app: App, bench: Bench):
    """Rows are written again, after a rest, while the database is busy."""
    bench.refusals = [StoreBusy("busy"), StoreBusy("busy")]

    assert [StepsAnswer.WRITTEN] == [each.answer for each in bench.written(step_of(run_of(app)))]
    assert 0.1 + 0.2 == pytest.approx(bench.rests.monotonic())


def test_rows_that_cannot_be_written_are_an_error_of_their_run(app: App, bench: Bench):
    """Rows that the database refuses are an error of their run; the rows beside them are written."""
    claim = run_of(app)
    first, second = bench.written(bad(claim), step_of(claim, "2"))

    assert isinstance(first, StoreError)
    assert StepsAnswer.WRITTEN is second.answer


def test_a_run_that_no_longer_waits_for_its_rows_delays_no_other(app: App, bench: Bench):
    """Rows of a run with a cancelled task are written like others, and their answer is dropped."""
    claim = run_of(app)

    async def write() -> StepsWritten:
        gone, refused = bench.writer.put(step_of(claim)), bench.writer.put(bad(claim))
        gone.cancel()
        refused.cancel()
        running = [asyncio.create_task(repeat(duty, bench.rests)) for duty in bench.writer.duties]
        answer = await bench.writer.put(step_of(claim, "2"))
        await _ended(running)
        return answer

    assert StepsAnswer.WRITTEN is asyncio.run(write()).answer
    assert ["1", "2"] == recorded(app)


class _Attempts:
    """The attempts of a worker, as the settler uses them."""

    def __init__(self) -> None:
        self.claim_again = asyncio.Event()
        self.count = 0
        self.ended = asyncio.Event()

    def settled(self, _: Sequence[Ending], settled: Settled) -> None:
        """Record that the attempts have ended."""
        assert settled.moved
        self.ended.set()


def test_rows_of_an_interrupted_run_are_written_before_its_end(app: App, bench: Bench):
    """Runs that a stop interrupts keep the steps that had ended, although their rows were not written yet."""
    claim = run_of(app)

    async def interrupt() -> None:
        attempts = _Attempts()
        settler = Settler(app, bench.rests, attempts, bench.writer)
        bench.writer.put(step_of(claim)).cancel()
        settler.put(Ending(claim, Released("the worker shut down", started=True), 0.0))
        duties = [settler.duty, *bench.writer.duties]
        running = [asyncio.create_task(repeat(duty, bench.rests)) for duty in duties]
        async with asyncio.timeout(PATIENCE):
            await attempts.ended.wait()
        await _ended(running)

    asyncio.run(interrupt())

    assert (["1"], "ready") == (recorded(app), app.job(claim.id).state)
