"""Calls on PostgreSQL while a transaction of the user stays open.

The apps of these tests wait ten seconds for a lock, so that a call that has to wait fails instead of hanging."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from redrive import App, CatchRequest, Pending
from redrive.engine.frozen import freeze
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded, Suspended
from redrive.engine.records import Filter
from redrive.errors import StoreBusy, StoreError
from redrive.stores.operations import crons, leases, retention, schedules, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.retention import RetentionTimes
from tests import postgres
from tests.runtime.helpers import until, working
from tests.stores.helpers import failed

LIFE = timedelta(hours=1)


def build(url: str) -> App:
    """Return an app, as each process of a fleet builds it."""
    app = App(url)

    @app.task(retry="2 1h")
    def send(number: int) -> None:
        """Send something."""

    @app.task(retry="1 1ms catch mend")
    def fragile(number: int) -> None:
        """Fail."""

    @app.task
    def mend(request: CatchRequest[Any]) -> None:
        """Mend nothing."""

    @app.task
    def ask(number: int) -> Pending:
        """Wait for an answer."""
        return Pending("1h")

    @app.refresh("Refresh every day at 9 AM; allow 10 minutes; on the first failure, retry after 1 minute")
    def prices(number: int) -> None:
        """Fetch prices."""

    @app.refresh("Refresh every day at 9 AM; allow 20 minutes; on the first failure, retry after 1 minute")
    def rates(number: int) -> None:
        """Fetch rates: no worker has declared this one yet."""

    @app.cron("0 9 * * *")
    def nightly() -> None:
        """Run by the clock."""

    return app


class TwoProcesses:
    """Two processes on one database, of which the first has an open transaction."""

    def __init__(self, url: str) -> None:
        self.mine, self.other = build(url), build(url)
        self.mine.open()
        app = self.mine
        declared = [app.tasks["prices"].definition, app.tasks["nightly"].definition]
        app.store.run(schedules.declare(declared))
        app.queue("lines").limit(ordered=True)
        app.queue("slots").limit(concurrency=1)
        prices = app.tasks["prices"]
        for key in ("mine", "other", "gone", "gone too"):
            prices.track(key, 1)
        self.worker = app.store.run(workers.register("host:1", concurrency=4, lease_for=LIFE))
        self.dead = app.tasks["fragile"].enqueue(1).id
        self.cancelled, self.waits = [each.id for each in app.tasks["ask"].enqueue_many([1, 2])]
        for claim in self.claimed(app):
            if claim.task == "fragile":
                app.store.run(leases.settle([Ending(claim, failed("no", permanent="no", reason="GAVE_UP"), 0.0)]))
            elif claim.id == self.waits:
                app.store.run(leases.settle([Ending(claim, Suspended(LIFE), 0.0)]))
                self.token = f"{claim.id}.{claim.lease_id}"
        app.job(self.cancelled).cancel()
        self.running = self.claim("send", self.put("send"))
        self.mine_running = self.claim("send", self.put("send"))

    def put(self, task: str) -> int:
        """Enqueue a job of a task."""
        return self.mine.tasks[task].enqueue(1).id

    def claimed(self, app: App) -> tuple[Any, ...]:
        """Claim whatever is due."""
        return app.store.run(leases.claim(self.worker, 100, lease_for=LIFE)).claims

    def claim(self, task: str, number: int) -> Any:
        """Claim whatever is due, and answer the claim of this job."""
        return next(each for each in self.claimed(self.mine) if (each.task, each.id) == (task, number))

    def close(self) -> None:
        """Close both apps."""
        self.mine.close()
        self.other.close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[TwoProcesses]:
    """Two processes on one database; a lock is waited for half as long as the timeout."""
    with contextlib.closing(TwoProcesses(postgres.url(timeout=getattr(request, "param", "20s")))) as made:
        yield made


Call = Callable[[Any], Any]

NEW = "7 7m"
"""A policy that the database has not seen."""

MINE: dict[str, Callable[[App, Any], object]] = {
    "enqueue": lambda app, using: app.tasks["send"].enqueue(1, using=using),
    "a new policy": lambda app, using: app.tasks["send"].options(retry=NEW).enqueue(1, using=using),
    "enqueue_many": lambda app, using: app.tasks["send"].options(retry=NEW).enqueue_many([1, 2], using=using),
    "a catch": lambda app, using: app.tasks["fragile"].enqueue(1, using=using),
    "a delay": lambda app, using: app.tasks["send"].options(delay="1h", priority=-5).enqueue(1, using=using),
    "an ordered queue": lambda app, using: (
        app.tasks["send"].options(queue="lines", partition="a").enqueue(1, using=using)
    ),
    "a limited queue": lambda app, using: app.tasks["send"].options(queue="slots").enqueue(1, using=using),
    "a key": lambda app, using: app.tasks["send"].options(key="mine").enqueue(1, using=using),
    "an idempotency key": lambda app, using: app.tasks["send"].options(idempotency_key="mine").enqueue(1, using=using),
    "debounce": lambda app, using: (
        app.tasks["send"].debounce("mine too", quiet="1h", at_most="2h").enqueue(1, using=using)
    ),
    "track": lambda app, using: app.tasks["prices"].keeping(using=using).track("new", 1),
    "track again": lambda app, using: app.tasks["prices"].keeping(using=using).track("mine", 2),
    "track under a policy": lambda app, using: (
        app.tasks["prices"].keeping(policy="Refresh every 2 hours; allow 3 minutes", using=using).track("own", 1)
    ),
    "track what is not declared": lambda app, using: app.tasks["rates"].keeping(using=using).track("new", 1),
    "untrack": lambda app, using: app.tasks["prices"].untrack("gone", using=using),
    "update": lambda app, using: app.tasks["prices"].update("mine", using=using),
}
"""Every public call that takes ``using=``."""


def _work(fleet: TwoProcesses) -> None:
    """Claim what is due, and end the attempts in each way."""
    app = fleet.other
    for number, claim in enumerate(fleet.claimed(app)):
        outcome = Succeeded() if number % 2 else failed()
        app.store.run(leases.settle([Ending(claim, outcome, 0.0)]))


def _refreshes(fleet: TwoProcesses) -> None:
    app = fleet.other
    app.store.run(schedules.status())
    app.store.run(schedules.declare([each.definition for each in app.schedules.declared.values()]))


def _prune(fleet: TwoProcesses) -> None:
    run = fleet.other.store.run
    run(retention.declare(fleet.other.keeps()))
    run(retention.prune(run(retention.survey(0, RetentionTimes(timedelta(0), timedelta(0))))))
    for digest in run(retention.policies()):
        run(retention.forget_policy(digest))


OTHERS: dict[str, Call] = {
    "enqueue": lambda fleet: fleet.other.tasks["send"].enqueue(1),
    "the same new policy": lambda fleet: fleet.other.tasks["send"].options(retry=NEW).enqueue(1),
    "aenqueue": lambda fleet: asyncio.run(fleet.other.tasks["send"].options(retry=NEW).aenqueue(1)),
    "enqueue_many": lambda fleet: fleet.other.tasks["send"].options(retry=NEW).enqueue_many([1, 2]),
    "a catch": lambda fleet: fleet.other.tasks["fragile"].enqueue(1),
    "an ordered queue": lambda fleet: fleet.other.tasks["send"].options(queue="lines", partition="a").enqueue(1),
    "a limited queue": lambda fleet: fleet.other.tasks["send"].options(queue="slots").enqueue(1),
    "another key": lambda fleet: fleet.other.tasks["send"].options(key="other").enqueue(1),
    "another idempotency key": lambda fleet: fleet.other.tasks["send"].options(idempotency_key="other").enqueue(1),
    "debounce by another key": lambda fleet: (
        fleet.other.tasks["send"].debounce("other too", quiet="1h", at_most="2h").enqueue(1)
    ),
    "track": lambda fleet: fleet.other.tasks["prices"].track("newer", 1),
    "track what is not declared": lambda fleet: fleet.other.tasks["rates"].track("newer", 1),
    "untrack": lambda fleet: fleet.other.tasks["prices"].untrack("gone too"),
    "update": lambda fleet: fleet.other.tasks["prices"].update("other"),
    "trigger a thing": lambda fleet: fleet.other.tasks["prices"].trigger("other"),
    "pause a thing": lambda fleet: fleet.other.tasks["prices"].pause("other"),
    "resume a thing": lambda fleet: fleet.other.tasks["prices"].resume("other"),
    "pause a refresh": lambda fleet: fleet.other.tasks["prices"].pause(),
    "resume a refresh": lambda fleet: fleet.other.tasks["prices"].resume(),
    "things": lambda fleet: (fleet.other.tasks["prices"].get("mine"), fleet.other.tasks["prices"].tracked()),
    "counts of things": lambda fleet: fleet.other.refreshes.counts(),
    "trigger a cron": lambda fleet: fleet.other.tasks["nightly"].trigger(),
    "pause a cron": lambda fleet: fleet.other.tasks["nightly"].pause(),
    "resume a cron": lambda fleet: fleet.other.tasks["nightly"].resume(),
    "occurrences": lambda fleet: fleet.other.tasks["nightly"].occurrences(),
    "fire": lambda fleet: fleet.other.store.run(crons.fire("nightly")),
    "schedules": lambda fleet: fleet.other.schedules.select(),
    "a worker starts": lambda fleet: fleet.other.store.run(workers.register("b:1", concurrency=1, lease_for=LIFE)),
    "declare": _refreshes,
    "heartbeat": lambda fleet: fleet.other.store.run(workers.beat(fleet.worker, LIFE)),
    "success": lambda fleet: fleet.other.store.run(leases.settle([Ending(fleet.running, Succeeded(), 0.0)])),
    "work": _work,
    "sweep": lambda fleet: fleet.other.store.run(leases.sweep(100)),
    "prune": _prune,
    "complete": lambda fleet: fleet.other.complete(fleet.token),
    "cancel a job": lambda fleet: fleet.other.tasks["send"].enqueue(1).cancel(),
    "cancel jobs": lambda fleet: fleet.other.jobs.cancel(Filter(task="mend")),
    "retry": lambda fleet: fleet.other.job(fleet.cancelled).retry(),
    "redrive": lambda fleet: fleet.other.jobs.redrive(Filter(state=State.CANCELLED)),
    "repolicy": lambda fleet: fleet.other.jobs.repolicy(Filter(all=True)),
    "queue.limit": lambda fleet: fleet.other.queue("slots").limit(concurrency=2),
    "queue.pause": lambda fleet: fleet.other.queue("default").pause(),
    "queue.resume": lambda fleet: fleet.other.queue("default").resume(),
    "queue.forget": lambda fleet: fleet.other.queue("default").forget(),
    "looking": lambda fleet: (
        fleet.other.jobs.select(),
        fleet.other.jobs.stats(),
        fleet.other.workers.select(),
        fleet.other.database.audit(),
        fleet.other.database.verify(),
        fleet.other.job(fleet.dead).attempts,
        fleet.other.queues.select(),
    ),
    "another process opens": lambda fleet: build(fleet.other.url).open().close(),
}


def blocked(fleet: TwoProcesses) -> dict[str, str]:
    """Make all other calls, and return those that waited or failed."""
    found: dict[str, str] = {}
    for name, call in OTHERS.items():
        try:
            call(fleet)
        except StoreError as error:
            found[name] = str(error)
    return found


@pytest.mark.parametrize("held", MINE)
def test_an_open_transaction_blocks_no_other_call(fleet: TwoProcesses, held: str):
    """While a transaction with a call of redrive's in it stays open, no other call waits for it, and it commits."""
    with postgres.connect(autocommit=False) as connection:
        MINE[held](fleet.mine, connection)
        assert {} == blocked(fleet)
        connection.commit()

    assert () == fleet.mine.database.verify()


def test_an_open_transaction_of_a_handler_blocks_no_other_call(fleet: TwoProcesses):
    """While a handler's transaction has ended its attempt and is not committed yet, no other call waits for it."""
    loan = fleet.mine.store.begin()
    loan.run(leases.settle([Ending(fleet.mine_running, Succeeded(), 0.0)]))

    assert {} == blocked(fleet)
    loan.commit()
    assert State.SUCCEEDED is fleet.mine.job(fleet.mine_running.id).state


def test_an_open_transaction_of_a_coroutine_blocks_no_other_call(fleet: TwoProcesses):
    """Open transactions on connections of asyncpg block no calls of coroutines."""

    async def run() -> set[str]:
        """Call everything on an event loop."""
        mine = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
        async with mine.transaction():
            await fleet.mine.tasks["send"].options(retry=NEW).aenqueue(1, using=mine)
            await fleet.mine.tasks["rates"].keeping(using=mine).atrack("new", 1)
            await fleet.other.tasks["send"].options(retry=NEW).aenqueue(1)
            await fleet.other.tasks["rates"].atrack("newer", 1)
        await mine.close()
        return {each.key for each in await fleet.other.tasks["rates"].atracked()}

    assert {"new", "newer"} == asyncio.run(run())


KEYED: dict[str, Callable[[App], Any]] = {
    "a key": lambda app: app.tasks["send"].options(key="same"),
    "an idempotency key": lambda app: app.tasks["send"].options(idempotency_key="same"),
    "debounce": lambda app: app.tasks["send"].debounce("same", quiet="1h", at_most="2h"),
}


@pytest.mark.realtime
@pytest.mark.parametrize("fleet", ["1s"], indirect=True)
@pytest.mark.parametrize("how", KEYED)
def test_the_same_key_waits_for_the_open_transaction_but_not_for_ever(fleet: TwoProcesses, how: str):
    """Calls with the key of an open transaction wait for its end, and fail after the timeout."""
    call = KEYED[how]
    with postgres.connect(autocommit=False) as connection:
        call(fleet.mine).enqueue(1, using=connection)
        with pytest.raises(StoreBusy, match="waited too long for a lock"):
            call(fleet.other).enqueue(2)
        with pytest.raises(StoreBusy, match="waited too long for a lock"):
            asyncio.run(call(fleet.other).aenqueue(2))
        connection.rollback()

    assert call(fleet.other).enqueue(2).created


LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
"""Finds a session that waits for a lock."""


@pytest.mark.parametrize("how", KEYED)
def test_the_end_of_a_handler_that_needs_a_held_key_delays_no_other_job(fleet: TwoProcesses, how: str):
    """A worker writes the ends of others while that of a handler waits for the key of a job that it has enqueued."""
    app, call = fleet.other, KEYED[how]

    @app.task
    async def repeats() -> int:
        """Enqueue a job with the key."""
        return (await call(app).aenqueue(2)).id

    @app.task
    async def plain(number: int) -> None:
        """Do nothing."""

    async def run() -> tuple[str, int]:
        async with working(app):
            first = await repeats.aenqueue()
            await until(lambda: watch.execute(LOCKED).fetchone() is not None)
            others = await plain.aenqueue_many(range(20))
            await until(lambda: {"succeeded"} == {each.refresh().state for each in others})
            held = first.refresh().state
            connection.rollback()
            await until(lambda: first.refresh().state == "succeeded")
            return held, first.result()

    with postgres.connect() as watch, postgres.connect(autocommit=False) as connection:
        call(fleet.mine).enqueue(1, using=connection)
        held, number = asyncio.run(run())

    assert ("running", "send") == (held, app.job(number).record.task)


def test_a_retired_policy_is_kept_for_a_transaction_that_read_it(fleet: TwoProcesses):
    """Retired policies still exist when an open transaction with a job of them commits."""
    run, app = fleet.mine.store.run, fleet.mine
    first = app.tasks["send"].options(retry=NEW).enqueue(1)
    policy = first.record.policy
    (digest,) = {each for each in run(retention.policies()) if each == freeze(policy).digest}
    first.cancel()
    with postgres.connect(autocommit=False) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        run(retention.prune(run(retention.survey(0, RetentionTimes(timedelta(0), timedelta(0))))))
        run(retention.forget_policy(digest))
        second = app.tasks["send"].options(retry=NEW).enqueue(2, using=connection)
        run(retention.forget_policy(digest))
        third = fleet.other.tasks["send"].options(retry=NEW).enqueue(3)
        connection.commit()

    assert [policy, policy] == [app.job(each.id).record.policy for each in (second, third)]
