"""The claimer takes what can start, gives back what cannot, rests while the store is away, and keeps suspects apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from redrive import App
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim
from redrive.engine.runs import RunState
from redrive.errors import StoreBusy
from redrive.runtime.ahead import Ahead
from redrive.runtime.claimer import Claimer
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending
from redrive.stores.query import Operation, Query, Statements
from redrive.testing import VirtualClock
from tests.runtime.helpers import LONG, PATIENCE, Registered, crash, register, repeat, take


class ClaimerFixture:
    """A claimer on a real store, with lists in place of the components that it calls."""

    def __init__(self, app: App, *, queues: Sequence[str] | None = None) -> None:
        self.app = app
        self.registration = Registered(app, register(app, lease_for=LONG), queues)
        self.rests = VirtualClock()
        self.slots = 10
        self.started: list[Claim] = []
        self.given_back: list[Claim] = []
        self.claimer = Claimer(app, self.rests, self.registration, self)
        self.claim_again = asyncio.Event()
        self.doubted = self.runs_suspect = self.closed = False
        self.count = self.room_ahead = 0
        self.ahead = Ahead(app, self.rests, self.registration)
        self.feeders = self
        self.children: int | None = None

    def apart(self, room: int) -> tuple[int, frozenset[str]] | None:
        """Return the children without a job of the task ``compute``."""
        share = room if self.children is None else self.children - sum(each.task == "compute" for each in self.started)
        return None if share >= room else (share, frozenset({"compute"}))

    def claimable(self, tasks: frozenset[str]) -> frozenset[str]:
        """Return all tasks: no feeder was given back."""
        return tasks

    def start(self, claims: Sequence[Claim], _: Mapping[int, RunState]) -> list[Claim]:
        """Record them."""
        self.started.extend(claims)
        return []

    def give_back(self, claim: Claim, _: RunState | None = None) -> None:
        """Record it."""
        self.given_back.append(claim)

    @property
    def quiet(self) -> bool:
        """Return True if no attempt runs."""
        return not self.count

    @property
    def free(self) -> int:
        """Return the slots in which no attempt was started."""
        return self.slots - len(self.started)

    def close(self) -> None:
        """Stop the worker."""
        self.closed = True
        self.claim_again.set()

    async def until(self, count: int) -> None:
        """Run the claimer until it has started this number of jobs."""
        running = asyncio.create_task(repeat(self.claimer.duty, self.rests))
        async with asyncio.timeout(PATIENCE):
            while len(self.started) < count:
                await VirtualClock().asleep(0)
            self.close()
            await running

    @property
    def jobs(self) -> list[int]:
        """Return the jobs that were started."""
        return [claim.id for claim in self.started]


def enqueue(app: App, count: int, **options: Any) -> None:
    """Enqueue jobs that no worker runs."""
    name = "send" if "send" not in app.tasks else f"send{len(app.tasks)}"
    app.task(name=name, **options)(lambda number: None).enqueue_many(range(count))


def test_a_claim_takes_no_more_jobs_than_free_slots(app: App):
    """Claim no more jobs than there are free slots, so that a crash does not cost jobs in a local queue."""
    bench = ClaimerFixture(app)
    bench.slots = 2
    enqueue(app, 5)
    asyncio.run(bench.until(2))

    assert ([1, 2], []) == (bench.jobs, bench.given_back)
    assert (3, 2) == (app.jobs.stats().due, app.jobs.stats().running)


def test_a_woken_claimer_claims_again(app: App):
    """Free slots and new jobs wake the claimer; without them it does not loop."""
    bench = ClaimerFixture(app)
    bench.slots = 1
    enqueue(app, 2)

    async def two_slots() -> None:
        """Give it a second slot later."""
        running = asyncio.create_task(repeat(bench.claimer.duty, bench.rests))
        async with asyncio.timeout(PATIENCE):
            while not bench.started:
                await VirtualClock().asleep(0)
            bench.slots = 2
            bench.claim_again.set()
            while len(bench.started) < 2:
                await VirtualClock().asleep(0)
            bench.close()
            await running

    asyncio.run(two_slots())

    assert [1, 2] == bench.jobs


def test_the_claimer_waits_until_the_next_due_time(filed: App):
    """Rest until the next job is due, and no longer."""
    app = filed
    bench = ClaimerFixture(app)
    app.task(name="send")(lambda: None).options(delay="20ms").enqueue()
    asyncio.run(bench.until(1))
    (claim,) = bench.started

    assert True is (claim.claimed_at >= app.job(claim.id).record.scheduled_at)


def note(app: App, version: str, compatible: str) -> None:
    """Change what the database records of its schema, as a newer redrive would."""

    def steps() -> Statements[None]:
        yield Query("schema_put", {"version": version, "compatible": compatible})

    app.store.run(Operation("note", steps(), writes=True))


def test_the_claimer_waits_under_an_incompatible_schema(app: App, caplog: pytest.LogCaptureFixture):
    """Under an incompatible newer schema the claimer logs this and waits; it continues after a downgrade."""
    bench = ClaimerFixture(app)
    enqueue(app, 1)
    note(app, "99", "99")

    async def taken_back() -> None:
        running = asyncio.create_task(repeat(bench.claimer.duty, bench.rests))
        async with asyncio.timeout(PATIENCE):
            while not caplog.messages:
                await VirtualClock().asleep(0)
            assert [] == bench.started
            await asyncio.to_thread(note, app, "1", "1")
            while not bench.started:
                await VirtualClock().asleep(0)
            bench.close()
            await running

    asyncio.run(taken_back())

    assert caplog.messages[0].startswith("claiming waits: ")
    assert "has schema 99, and this redrive supports schemas up to" in caplog.messages[0]


def test_the_claimer_continues_under_a_compatible_newer_schema(app: App, caplog: pytest.LogCaptureFixture):
    """During a rolling deployment old workers continue, and log once that they are old."""
    bench = ClaimerFixture(app)
    enqueue(app, 2)
    note(app, "99", "1")
    asyncio.run(bench.until(2))

    assert ["the database was migrated by a newer redrive"] == [each.partition(";")[0] for each in caplog.messages]


def test_the_claimer_serves_the_given_queues(app: App):
    """Jobs of other queues are left to other workers."""
    bench = ClaimerFixture(app, queues=["fast"])
    enqueue(app, 1, queue="slow")
    enqueue(app, 1, queue="fast")
    asyncio.run(bench.until(1))

    assert ([2], 1) == (bench.jobs, app.jobs.stats().due)


def test_a_stop_during_a_claim_gives_the_jobs_back(app: App, monkeypatch: pytest.MonkeyPatch):
    """Jobs that were claimed while the stop arrived never start, and none stays claimed (conformance D28)."""
    bench = ClaimerFixture(app)
    enqueue(app, 5)
    claim = app.store.arun

    async def slow(operation: Any) -> Any:
        """Stop the worker while the claim is in progress."""
        result = await claim(operation)
        bench.close()
        return result

    monkeypatch.setattr(app.store, "arun", slow)
    asyncio.run(asyncio.wait_for(repeat(bench.claimer.duty, bench.rests), PATIENCE))

    assert ([], [1, 2, 3, 4, 5]) == (bench.started, [claim.id for claim in bench.given_back])


def test_the_claimer_backs_off_while_the_store_is_unreachable(app: App, monkeypatch: pytest.MonkeyPatch):
    """Longer after each failure, and at once again when the store is back."""
    bench = ClaimerFixture(app)
    enqueue(app, 1)
    refusals = [StoreBusy(), StoreBusy(), StoreBusy()]
    claim = leases.claim

    def flaky(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return claim(*args, **options)

    monkeypatch.setattr(leases, "claim", flaky)
    asyncio.run(bench.until(1))

    assert [1] == bench.jobs
    assert pytest.approx(0.1 + 0.2 + 0.4) == bench.rests.monotonic()


def test_an_unregistered_worker_registers_again(app: App, monkeypatch: pytest.MonkeyPatch):
    """Ask for a new registration, and claim as before under the new id."""
    bench = ClaimerFixture(app)
    bench.registration.id = 99
    asked: list[int] = []

    def renew_soon(number: int) -> None:
        asked.append(number)
        bench.registration.id = register(app)

    monkeypatch.setattr(bench.registration, "renew_soon", renew_soon)
    enqueue(app, 1)
    asyncio.run(bench.until(1))

    assert ([99], [1]) == (asked, bench.jobs)


# ----------------------------------------------------------------------------------------------------- child processes


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the sizes of claims."""
    seen: list[int] = []
    claim = leases.claim

    def noted(worker: int, count: int, **options: Any) -> Any:
        seen.append(count)
        return claim(worker, count, **options)

    monkeypatch.setattr(leases, "claim", noted)
    return seen


def test_jobs_for_child_processes_are_left_to_workers_with_free_children(app: App):
    """Each of two workers claims such jobs for its own children, and jobs of other tasks for its other slots."""
    first, second = ClaimerFixture(app), ClaimerFixture(app)
    first.children, second.children = 2, 1
    enqueue(app, 5)
    app.task(name="compute")(lambda number: None).enqueue_many(range(4))
    asyncio.run(first.until(7))
    asyncio.run(second.until(1))

    assert ([1, 2, 3, 4, 5, 6, 7], [8]) == (sorted(first.jobs), second.jobs)
    assert 1 == app.jobs.stats().due


def test_a_claim_for_children_that_has_taken_enough_is_followed_by_one_for_the_other_slots(
    app: App, counted: list[int]
):
    """Slots are filled by one claim of other tasks, however few children are free."""
    bench = ClaimerFixture(app)
    bench.children = 1
    enqueue(app, 9)
    asyncio.run(bench.until(9))

    assert [1, 9] == counted[:2]


def test_a_worker_of_child_processes_alone_claims_nothing_while_all_are_busy(app: App, counted: list[int]):
    """Its claimer waits for the end of an attempt, and sends no statement."""
    bench = ClaimerFixture(app)
    bench.children = 1
    app.task(name="compute")(lambda number: None).enqueue_many(range(3))
    asyncio.run(bench.until(1))

    assert ([1], [1]) == (bench.jobs, counted)


def test_a_worker_that_ends_when_no_job_is_due_has_looked_for_jobs_of_all_tasks(app: App):
    """Claims without the tasks of child processes do not end it."""
    bench = ClaimerFixture(app)
    bench.children = 1
    bench.claimer._quota.until_empty = True
    enqueue(app, 1)
    compute = app.task(name="compute")(lambda number: None)
    compute.enqueue(1)
    asyncio.run(asyncio.wait_for(repeat(bench.claimer.duty, bench.rests), PATIENCE))

    assert [1, 2] == bench.jobs


# ------------------------------------------------------------------------------------------------------------ suspects


def test_after_one_crash_jobs_start_together(app: App):
    """After one crash, which seldom is the fault of a job, all jobs start again together."""
    bench = ClaimerFixture(app)
    enqueue(app, 3)
    crash(app, 1)
    asyncio.run(bench.until(3))

    assert [1, 2, 3] == bench.jobs


def test_jobs_suspected_of_crashes_run_one_at_a_time(app: App):
    """Run suspects one at a time; the others are given back first, with no attempt spent (D19)."""
    bench = ClaimerFixture(app)
    enqueue(app, 3)
    crash(app, 2)
    enqueue(app, 1)
    asyncio.run(bench.until(2))
    waiting = [app.job(number).record for number in (2, 3)]

    assert [1, 4] == bench.jobs
    assert [("ready", 2, 2)] * 2 == [(record.state, record.attempt, record.crashes) for record in waiting]
    after = [timedelta(milliseconds=turn) for turn in (50, 100)]
    assert after == [record.scheduled_at - app.clock.now() for record in waiting]
    assert "its worker was lost twice while it ran; it waits for its turn to run alone" == waiting[0].note


def test_while_a_suspected_job_runs_no_other_suspect_starts(app: App):
    """Healthy jobs start beside it; the others look again after a second."""
    bench = ClaimerFixture(app)
    bench.runs_suspect = True
    enqueue(app, 2)
    crash(app, 2)
    enqueue(app, 1)
    asyncio.run(bench.until(1))

    assert ([3], 2) == (bench.jobs, app.jobs.stats().scheduled)
    waiting = [app.job(number).record.scheduled_at - app.clock.now() for number in (1, 2)]
    assert [timedelta(seconds=1)] * 2 == waiting


def test_suspects_that_cannot_be_released_block_new_starts(app: App, monkeypatch: pytest.MonkeyPatch):
    """If the store does not take the other suspects back in time, the whole claim is given back later."""
    bench = ClaimerFixture(app)
    enqueue(app, 2)
    crash(app, 2)

    def away(*args: Any, **options: Any) -> Any:
        bench.close()
        raise StoreBusy

    monkeypatch.setattr(leases, "settle", away)
    asyncio.run(asyncio.wait_for(repeat(bench.claimer.duty, bench.rests), PATIENCE))

    assert ([], [1, 2]) == (bench.started, [claim.id for claim in bench.given_back])


def test_a_suspected_job_is_cleared_by_a_success(app: App):
    """Crashes in a row are counted, and a success ends the row."""
    enqueue(app, 1)
    crash(app, 2)
    (claim,) = take(app)
    app.store.run(leases.settle([Ending(claim, Succeeded(), 0.0)], now=app.now()))

    assert ("succeeded", 0, 3) == (
        app.job(1).record.state,
        app.job(1).record.crashes,
        app.job(1).record.attempt,
    )


class Ticking(VirtualClock):
    """A clock by which everything takes ten milliseconds."""

    def monotonic(self) -> float:
        """Return the next second."""
        self.advance(timedelta(milliseconds=10))
        return super().monotonic()


class OneByOne(ClaimerFixture):
    """A bench with one free slot, always."""

    @property
    def slots(self) -> int:
        """Return one slot more than are in use."""
        return len(self.started) + 1

    @slots.setter
    def slots(self, count: int) -> None:
        """It stays one."""


def test_claims_use_floors_and_sometimes_read_without_them(app: App, monkeypatch: pytest.MonkeyPatch):
    """Claims begin at the floors that earlier ones have set, but for one after twenty times what such a one takes."""
    seen: list[int] = []
    claim = leases.claim

    def noted(*args: Any, cursors: Sequence[leases.LaneCursor], **options: Any) -> Any:
        """Note how many floors the claimer has."""
        seen.append(len(cursors))
        return claim(*args, cursors=cursors, **options)

    monkeypatch.setattr(leases, "claim", noted)
    bench = OneByOne(app)
    bench.claimer._clock = Ticking()
    enqueue(app, 25)
    asyncio.run(bench.until(25))

    assert [*range(1, 26)] == bench.jobs
    assert [0, *[1] * 10, 0, *[1] * 10, 0] == seen[:23]
