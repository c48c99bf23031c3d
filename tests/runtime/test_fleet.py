"""Workers with the same jobs look in turns."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from redrive import App
from redrive.engine.records import WorkerRecord
from redrive.runtime.dead_workers import LOOK, DeadWorkers, Rescuer
from redrive.runtime.fleet import FEW, SOON, SPARSE, STEP, TURN, VAIN, Fleet
from redrive.runtime.scheduler import NET_CREATED, Scheduler
from redrive.runtime.timeouts import LOOK as TIMEOUTS
from redrive.runtime.timeouts import Timeouts
from redrive.runtime.worker import Worker
from redrive.stores.drivers.postgres import listener
from redrive.testing import VirtualClock
from tests.runtime.helpers import Registered, register

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def worker(number: int, *, queues: tuple[str, ...] | None = None, tasks: tuple[str, ...] | None = None) -> WorkerRecord:
    """Return the record of a worker."""
    return WorkerRecord(number, "w", None, None, None, None, 1, queues, tasks, T0, T0, T0, None, None)


def placed(own: int, *workers: WorkerRecord) -> Fleet:
    """Return the place of a worker among others."""
    fleet = Fleet()
    fleet.see(own, workers)
    return fleet


def test_a_lone_worker_looks_at_once_and_always():
    """Workers without others have no delays."""
    for fleet in (Fleet(), placed(1, worker(1))):
        assert (0.0, 0.0, 7.0) == (fleet.delay(T0), fleet.lag, fleet.interval(7.0))


def test_at_any_instant_one_worker_is_first_and_the_others_follow_step_by_step():
    """Each place is taken once, and each worker comes first in turn."""
    fleets = [placed(own, *(worker(each) for each in range(4))) for own in range(4)]
    first = []
    for turn in range(8):
        delays = [each.delay(T0 + turn * timedelta(seconds=TURN * 1.001)) for each in fleets]
        assert [0, STEP, 2 * STEP, 3 * STEP] == sorted(delays)
        first.append(delays.index(0))

    assert {0, 1, 2, 3} == set(first[:4])
    assert first[:4] == first[4:]


def test_after_a_look_in_vain_only_a_few_workers_look_at_each_notification():
    """Workers behind the first ones look again after a while, and at once when it is their turn to be first."""
    size = FEW * 2
    fleets = [placed(own, *(worker(each) for each in range(size))) for own in range(size)]
    places = [round(each.delay(T0) / STEP) for each in fleets]
    for each in fleets:
        each.polled(T0, in_vain=True)
    soon, later = T0 + timedelta(seconds=TURN * size), T0 + timedelta(seconds=VAIN + TURN * size)
    again = [each.delay(soon) for each in fleets]
    for each in fleets[:2]:
        each.polled(soon, in_vain=False)

    assert sorted(places) == list(range(size))
    assert again == [pytest.approx(STEP * place if place < FEW else VAIN - TURN * size) for place in places]
    assert [STEP * place for place in places[:2]] == [each.delay(soon) for each in fleets[:2]]
    assert all(each.delay(later) <= STEP * size for each in fleets)


def test_only_the_first_workers_look_before_a_second_report():
    """Workers behind the first ones look after all transactions of a notification's moment are committed."""
    fleets = [placed(own, *(worker(each) for each in range(FEW * 2))) for own in range(FEW * 2)]

    assert FEW == sum(each.delay(T0) < SOON for each in fleets)
    assert listener.AGAIN < SOON


def test_workers_with_other_jobs_do_not_count():
    """Workers that serve other queues or have other tasks do not make a worker wait."""
    others = [worker(1, queues=("mail",)), worker(2, tasks=("send",)), worker(3), worker(4)]

    assert [(0, 1), (0, 1), (0, 2), (1, 2)] == [
        (fleet.rank, fleet.size) for fleet in (placed(own, *others) for own in (1, 2, 3, 4))
    ]


def test_the_order_of_names_does_not_matter():
    """Workers with the same tasks in another order count."""
    fleet = placed(2, worker(1, tasks=("a", "b")), worker(2, tasks=("b", "a")))

    assert (1, 2) == (fleet.rank, fleet.size)


def test_a_worker_that_is_not_listed_counts_as_alone():
    """Workers that register again depend on no other worker."""
    fleet = placed(2, worker(1), worker(2))
    fleet.see(2, [worker(1)])

    assert (0, 1) == (fleet.rank, fleet.size)


def test_younger_workers_look_less_often_up_to_a_limit():
    """The two oldest workers have the same interval, so that one does the duties of the other at once."""
    fleets = [placed(own, *(worker(each) for each in range(9))) for own in range(9)]

    assert [1, 1, 2, 3, 4, 5, 5, 5, 5] == [fleet.interval(1.0) for fleet in fleets]


@pytest.fixture
def app():
    """Return an app in memory with ten workers that have the same tasks."""
    app = App("memory://", clock=VirtualClock())
    for _ in range(10):
        register(app)
    yield app
    app.close()


def youngest(app: App) -> tuple[Fleet, Registered]:
    """Return the place and the registration of the youngest worker."""
    records = app.workers.select()
    fleet = Fleet()
    fleet.see(records[-1].id, records)
    return fleet, Registered(app, records[-1].id)


def test_the_duties_of_the_youngest_of_many_workers_rest_longer(app: App):
    """Ten idle workers do not ask ten times as much as two."""
    fleet, registration = youngest(app)
    every = app.terms.heartbeat_every.total_seconds()
    rests = [
        asyncio.run(duty.step())
        for duty in (DeadWorkers(app, registration, fleet).duty, Timeouts(app, fleet).duty, Rescuer(app, fleet).duty)
    ]

    assert [SPARSE * LOOK, SPARSE * TIMEOUTS, SPARSE * every] == rests
    assert SPARSE * NET_CREATED.total_seconds() == asyncio.run(Scheduler(app, fleet).duty.step())


def test_the_first_look_of_a_worker_finds_its_place(app: App):
    """Workers read their place with the list of workers that they check."""
    fleet = Fleet()
    asyncio.run(DeadWorkers(app, Registered(app, app.workers.select()[3].id), fleet).look())

    assert (3, 10) == (fleet.rank, fleet.size)


class Looking(Worker):
    """A worker that counts its looks."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(App("memory://", clock=clock), clock=clock)
        self.looks = 0
        self.looked = asyncio.Event()

    def _look(self) -> None:
        super()._look()
        self.looks += 1
        self.looked.set()


def test_a_notified_worker_looks_in_its_turn():
    """Notifications before its turn make a worker look once."""

    async def run() -> tuple[int, int]:
        """Notify a worker twice, and wait for its turn."""
        clock = VirtualClock()
        one = Looking(clock)
        one._fleet.rank, one._fleet.size = 1, 3
        while one._fleet.delay(clock.now()) != STEP:
            clock.advance(TURN)
        one._changed()
        one._changed()
        at_once = one.looks
        await one.looked.wait()
        return at_once, one.looks

    assert (0, 1) == asyncio.run(run())


def test_an_earlier_turn_replaces_a_later_one():
    """A worker that waits for a late turn looks soon if it is among the first at the next notification."""

    async def run() -> list[object]:
        """Notify a worker that looked in vain, and again when it is the second; then when it is not."""
        clock = VirtualClock()
        one = Looking(clock)
        one._fleet.rank, one._fleet.size = 0, FEW * 8
        while one._fleet.delay(clock.now()) < SOON:
            clock.advance(TURN)
        one._fleet.polled(clock.now(), in_vain=True)
        soon = [one._looks_soon()]
        one._changed()
        late = one._later
        soon.append(one._looks_soon())
        while one._fleet.delay(clock.now()) != STEP:
            clock.advance(TURN)
        soon.append(one._looks_soon())
        one._changed()
        second = one._later
        while one._fleet.delay(clock.now()) < SOON:
            clock.advance(TURN)
        soon.append(one._looks_soon())
        one._changed()
        assert late is not None
        assert second is not None
        found = [*soon, late.cancelled(), second is one._later, second.when() < late.when()]
        async with asyncio.timeout(1):
            await one.looked.wait()
        return [*found, one.looks, one._later]

    assert [False, False, True, True, True, True, True, 1, None] == asyncio.run(run())
