"""Topics: late commits, failing events, crashes, restores, retention, and the rules of FTL."""

# ruff: noqa: S608 - the tables of the test

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from redrive import App, CatchRequest, Context
from redrive.app.topics.topic import Topic
from redrive.clock import SystemClock
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.errors import (
    CatchDefinitionError,
    ConfigurationError,
    PayloadError,
    SubscriptionNotFound,
    TaskDefinitionError,
    TopicsRestored,
)
from redrive.runtime.worker import Worker
from redrive.stores.operations.topics import feed
from redrive.testing import VirtualClock, drain
from tests import postgres
from tests.stores.statements.postgres.test_plans import Plans

STORES = ["memory", "file", "turso", "postgres"]

PATIENCE = 60
"""Seconds until a test gives up."""


@dataclass
class Payment:
    """An event."""

    n: int


@contextlib.contextmanager
def opened(kind: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty store."""
    if kind == "postgres":
        with postgres.lent() as url:
            yield url
        return
    yield {
        "memory": "memory://",
        "file": f"sqlite:///{folder / 'jobs.db'}?synchronous=normal",
        "turso": f"turso:///{folder / 'jobs.db'}?synchronous=normal",
    }[kind]


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """Yield an app in virtual time on each store."""
    with opened(request.param, tmp_path) as url:
        app = App(url, clock=VirtualClock())
        yield app
        app.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[App]:
    """Yield an app in virtual time on PostgreSQL."""
    with opened("postgres", tmp_path) as url:
        app = App(url, clock=VirtualClock())
        yield app
        app.close()


def sink(topic: Topic[Payment], name: str = "sink", **options: object) -> list[int]:
    """Subscribe a function that keeps what it gets, and return the list."""
    seen: list[int] = []

    @topic.subscribe(name, **options)
    def keep(payment: Payment) -> None:
        seen.append(payment.n)

    return seen


# ------------------------------------------------------------------------------------------------------------ T1 to T4


@pytest.mark.case("T1")
@pytest.mark.parametrize("a_has_the_lower_xid", [True, False])
@pytest.mark.parametrize("a_has_the_lower_id", [True, False])
def test_a_late_commit_is_not_skipped(server: App, *, a_has_the_lower_xid: bool, a_has_the_lower_id: bool):
    """Deliver each event once, whatever the order of transaction ids, event ids and commits."""
    topic = server.topic("payments", Payment)
    seen = sink(topic)
    drain(server)
    with postgres.connect(autocommit=False) as a, postgres.connect(autocommit=False) as b:
        for each in (a, b) if a_has_the_lower_xid else (b, a):
            each.execute("SELECT pg_current_xact_id()")
        for each, number in [(a, 1), (b, 2)] if a_has_the_lower_id else [(b, 2), (a, 1)]:
            topic.publish(Payment(number), using=each)
        b.commit()
        drain(server)
        first = list(seen)
        topic.publish(Payment(3))
        drain(server)
        a.commit()
        drain(server)

    assert ([2], [2, 3, 1]) == (first, seen)
    assert 0 == server.topics.select()[0].lag.events


@pytest.mark.case("T1")
@pytest.mark.case("D59")
def test_each_subscription_gets_each_event_once(app: App):
    """Deliver every event to each subscription, whatever another one does with it."""
    topic = app.topic("payments", Payment)
    seen, failures = sink(topic, "second"), []

    @topic.subscribe("first", retry="3 1s")
    def fails(payment: Payment, ctx: Context) -> None:
        if payment.n == 10 and ctx.attempt < 4:
            failures.append(ctx.attempt)
            raise ValueError("no")

    topic.publish_many([Payment(number) for number in range(100)])
    drain(app)

    assert (list(range(100)), [1, 2, 3]) == (seen, failures)
    assert [0, 0] == [each.lag.events for each in app.topics.select()]


@pytest.mark.case("T2")
def test_open_transactions_elsewhere_stop_no_topic(server: App):
    """Deliver at once while writing transactions are open in this and in another database, and read only new events."""
    topic = server.topic("payments", Payment)
    seen = sink(topic)
    name = f"other_{postgres.fresh()}"
    with postgres.connect() as admin:
        admin.execute(f"CREATE DATABASE {name}")
    with postgres.connect(database=name, autocommit=False) as other, postgres.connect(autocommit=False) as here:
        other.execute("CREATE TABLE written (n int)")
        here.execute("CREATE TEMPORARY TABLE written (n int)")
        for number in range(5):
            topic.publish(Payment(number))
            drain(server)
            assert number == seen[-1]
        handle = server.topics.subscription("payments", "sink").status()
        (look,) = server.store.run(feed.look([handle.shards[0].job_id]))
        assert (False, list(range(5))) == (look.news, seen)


@pytest.mark.realtime
@pytest.mark.case("T2")
@pytest.mark.parametrize("kind", ["in another database", "prepared"])
def test_latency_and_reads_do_not_depend_on_open_writers(kind: str):
    """Deliver within 100 ms, and read only new events, while a writing transaction is open elsewhere or prepared."""
    with postgres.lent() as url:
        app = App(url)
        topic = app.topic("payments", Payment)
        old: list[int] = []
        took: list[float] = []
        sent: list[float] = []

        @topic.subscribe("sink")
        async def keep(payment: Payment) -> None:
            old.append(payment.n)
            if payment.n >= 0:
                took.append(SystemClock().monotonic() - sent[payment.n])

        async def run() -> None:
            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            await topic.apublish_many([Payment(-1)] * 3000)
            await eventually(lambda: len(old) == 3000)
            for number in range(40):
                sent.append(SystemClock().monotonic())
                await topic.apublish(Payment(number))
                await eventually(lambda number=number: len(took) > number)
            worker.stop()
            await running

        with writing(kind):
            asyncio.run(run())
            topic.publish_many([Payment(-1)] * 5)
            (shard,) = app.topics.select()[0].shards
            seen = f"'{shard.until or shard.seen}'"
            with postgres.connect() as connection:
                # As autovacuum does: without statistics the planner takes the topic for a few rows, and reads them.
                connection.execute(f"ANALYZE {url.partition('schema=')[2]}.redrive_events")
                edge = f"'{connection.execute('SELECT pg_current_snapshot()').fetchone()[0]}'"
                window = {"seen": seen, "until": edge, "types": "NULL", "shards": "1", "shard": "0", "after": "0"}
                plans = Plans(connection, url.partition("schema=")[2])
                nodes = plans.explain("feed_near", topic="'payments'", count="2001", **window)
        app.close()

    assert 0.1 > statistics.median(took)
    reads = [each for each in nodes if each.get("Relation Name") == "redrive_events"]
    assert (5, 5) == (nodes[0]["Actual Rows"], sum(each["Actual Rows"] * each["Actual Loops"] for each in reads))
    assert 0 == sum(each.get("Rows Removed by Filter", 0) for each in reads)
    assert 30 > nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


@contextlib.contextmanager
def writing(kind: str) -> Iterator[None]:
    """Keep a transaction open that has written: in another database of the server, or prepared in this one."""
    name = postgres.fresh()
    if kind == "prepared":
        with postgres.connect() as here:
            here.execute(f"CREATE TABLE written_{name} (n int)")
            here.execute("BEGIN")
            here.execute(f"INSERT INTO written_{name} VALUES (1)")
            here.execute(f"PREPARE TRANSACTION '{name}'")
            try:
                yield
            finally:
                here.execute(f"ROLLBACK PREPARED '{name}'")
        return
    with postgres.connect() as admin:
        admin.execute(f"CREATE DATABASE other_{name}")
    with postgres.connect(database=f"other_{name}", autocommit=False) as other:
        other.execute("CREATE TABLE written (n int)")
        yield


@pytest.mark.case("T3")
@pytest.mark.parametrize("order", ["strict", "key"])
@pytest.mark.parametrize("between", [True, False], ids=["two windows", "one window"])
def test_a_cause_comes_before_its_effect(server: App, order: str, *, between: bool):
    """Deliver the event of the first holder of a row lock before that of the second one, which has the lower xid."""
    topic = server.topic("payments", Payment)
    seen = sink(topic, order=order)
    with postgres.connect() as admin:
        table = f"locked_{postgres.fresh()}"
        admin.execute(f"CREATE TABLE {table} AS SELECT 1 AS n")
    with postgres.connect(autocommit=False) as x, postgres.connect(autocommit=False) as y:
        x.execute("SELECT pg_current_xact_id()")
        y.execute(f"UPDATE {table} SET n = n + 1")
        waiting = threading.Thread(target=x.execute, args=(f"UPDATE {table} SET n = n + 1",))
        waiting.start()
        topic.publish(Payment(1), key="k", using=y)
        y.commit()
        waiting.join(PATIENCE)
        if between:
            drain(server)
        topic.publish(Payment(2), key="k", using=x)
        x.commit()
    drain(server)

    assert [1, 2] == seen


@pytest.mark.case("T4")
def test_savepoints_publish_with_their_transaction(server: App):
    """Deliver the event of a released savepoint once, and none of one that was rolled back."""
    topic = server.topic("payments", Payment)
    seen = sink(topic)
    with postgres.connect(autocommit=False) as connection:
        # In an open transaction the blocks below are savepoints.
        connection.execute("SELECT 1")
        with connection.transaction():
            topic.publish(Payment(1), using=connection)
        with contextlib.suppress(psycopg.Rollback), connection.transaction():
            topic.publish(Payment(2), using=connection)
            raise psycopg.Rollback
        drain(server)
        before = list(seen)
        connection.commit()
    drain(server)

    assert ([], [1]) == (before, seen)


# ---------------------------------------------------------------------------------------------------------- T5: a crash


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await SystemClock().asleep(0.001)


def crash(app: App, monkeypatch: pytest.MonkeyPatch, after: Callable[[], bool]) -> None:
    """Run a worker until the condition holds, and let it die without writing anything more."""

    async def run() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await eventually(after)

        # From here on the process is as dead: none of its operations reaches the store.
        async def silent(self: object, operation: object, **_: object) -> None:
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(type(app.store), "arun", silent)
        running.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.wait_for(running, 0.1)

    with contextlib.suppress(TimeoutError):
        asyncio.run(run())
    monkeypatch.undo()


def finish(app: App, done: Callable[[], bool]) -> None:
    """Run a worker until the condition holds, and stop it in order."""

    async def run() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await eventually(done)
        worker.stop()
        await running

    asyncio.run(run())


@pytest.mark.case("T5")
@pytest.mark.parametrize("kind", ["memory", "file", "turso", "postgres"])
def test_a_crash_repeats_only_what_was_not_written(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Deliver again what lies between the written position and the crash, marked; later events come once."""
    with opened(kind, tmp_path) as url:
        app = App(url, heartbeat_every="200ms", lease_for="2s")
        topic = app.topic("payments", Payment)
        seen: list[tuple[int, bool]] = []
        go_on = threading.Event()

        @topic.subscribe("sink")
        async def keep(payment: Payment, ctx: Context) -> None:
            if len(seen) == 170 and not go_on.is_set():
                await SystemClock().asleep(PATIENCE)
            seen.append((payment.n, ctx.redelivered))

        monkeypatch.setattr("redrive.runtime.deliveries.FLUSH_EVENTS", 100)
        topic.publish_many([Payment(number) for number in range(300)])
        crash(app, monkeypatch, lambda: len(seen) == 170)
        topic.publish_many([Payment(number) for number in range(300, 350)])
        written = app.topics.select()[0].shards[0].at_id
        go_on.set()
        finish(app, lambda: seen[-1][0] == 349)
        app.close()
    numbers = [number for number, _ in seen]
    again = numbers[170:].index(299) + 171 - 300

    assert list(range(170)) == numbers[:170]
    assert list(range(numbers[170], 350)) == numbers[170:]
    assert 0 < written
    assert 0 < again <= 170
    assert all(marked for number, marked in seen[170:] if number < 170)
    assert not any(marked for number, marked in seen if number >= 300)


@pytest.mark.case("T5")
@pytest.mark.parametrize("order", ["strict", "none"])
def test_effects_in_the_transaction_of_a_delivery_are_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
):
    """Commit the writes of a handler with the end of the delivery, so that a crash repeats none of them."""
    path = tmp_path / "jobs.db"
    app = App(f"sqlite:///{path}?synchronous=normal", heartbeat_every="200ms", lease_for="2s")
    topic = app.topic("payments", Payment)
    out = app.topic("out", int)
    with contextlib.closing(sqlite3.connect(path)) as mine, mine:
        mine.execute("CREATE TABLE effects (n INTEGER)")
    done: list[int] = []

    @topic.subscribe("sink", order=order)
    async def keep(payment: Payment, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            connection.execute("INSERT INTO effects VALUES (?)", (payment.n,))
            out.publish(payment.n)
        done.append(payment.n)

    topic.publish_many([Payment(number) for number in range(40)])
    monkeypatch.setattr("redrive.runtime.feeder.FLUSH_FOR", 3600.0)
    crash(app, monkeypatch, lambda: len(done) >= 20)
    finish(app, lambda: app.topics.sizes()[0].events == 40)
    with contextlib.closing(sqlite3.connect(path)) as mine:
        found = [row[0] for row in mine.execute("SELECT n FROM effects ORDER BY n")]
        published = mine.execute("SELECT count(*) FROM redrive_events WHERE topic = 'out'").fetchone()[0]
        rest = mine.execute("SELECT count(*) FROM redrive_done").fetchone()[0]
    app.close()

    assert (list(range(40)), 40, 0) == (found, published, rest)


# ---------------------------------------------------------------------------------------------------- T6, T7: failures


@pytest.mark.case("T6")
@pytest.mark.parametrize("way", ["move", "skip"])
def test_a_failing_head_waits_until_an_operator_acts(app: App, way: str):
    """Hold a strict subscription for an hour, let another one go on, and end the wait by a move or a skip."""
    topic = app.topic("payments", Payment)
    seen, other = [], sink(topic, "other")

    @topic.subscribe("strict", retry="5 1h")
    def strict(payment: Payment) -> None:
        if payment.n == 0:
            raise ValueError("head")
        seen.append(payment.n)

    topic.publish_many([Payment(number) for number in range(4)])
    drain(app, within="1m")
    status = strict.status()
    held = status.held_by[0]

    assert ([], [0, 1, 2, 3]) == (seen, other)
    assert (3, 1, State.READY, Hold.RETRY) == (status.lag.events, status.lag.failed, held.state, held.hold)
    if way == "move":
        strict.pause()
        assert 1 == strict.move("end")
        topic.publish(Payment(9))
        drain(app, within="1m")
        assert (1, []) == (strict.status().lag.events, seen)
        strict.resume()
        drain(app, within="1m")
        assert ([9], 0, 0) == (seen, strict.status().lag.events, strict.status().lag.failed)
        return
    strict.skip()
    drain(app, within="1m")
    (dead,) = app.jobs.select(Filter(task="payments.strict", state=State.DEAD))

    assert ([1, 2, 3], "head") == (seen, dead.error)
    # An operator has decided about it: it counts as a problem nowhere, and a filter finds it.
    assert (0, 0, 0) == (strict.status().lag.events, strict.status().lag.failed, strict.status().lag.dead)
    assert ((), ()) == (strict.status().held_by, strict.status().dead)
    assert [dead.id] == [job.id for job in app.jobs.select(Filter(skipped=True))]


@pytest.mark.case("T7")
@pytest.mark.parametrize("rule", ["succeeds", "continue", "hold"])
def test_a_failing_key_holds_no_other(app: App, rule: str):
    """Deliver other keys at once, and the events of the failing key in order after its success, or by the rule."""
    topic = app.topic("payments", tuple[str, int])
    seen: list[tuple[str, int]] = []
    last = 3 if rule == "succeeds" else 99

    @topic.subscribe("sink", order="key", retry="3 5s", dead="hold" if rule == "hold" else "continue")
    def keep(event: tuple[str, int], ctx: Context) -> None:
        if event == ("k", -1) and ctx.attempt <= last:
            raise ValueError("no")
        seen.append(event)

    topic.publish(("k", -1), key="k")
    topic.publish_many([(key, n) for n in range(20) for key in ("k", "a", "b")], key=lambda event: event[0])
    drain(app, within="1s")

    for other in ("a", "b"):
        assert list(range(20)) == [n for key, n in seen if key == other]
    assert 40 == len(seen)
    drain(app, within="1h")
    of_k = [n for key, n in seen if key == "k"]
    if rule == "hold":
        assert [] == of_k
        keep.skip()
        drain(app, within="1h")
        of_k = [n for key, n in seen if key == "k"]
    assert ([-1] if rule == "succeeds" else []) + list(range(20)) == of_k


@pytest.mark.case("T7")
def test_no_event_overtakes_while_a_line_empties(app: App):
    """Keep the order of a key while its jobs end and new events of it arrive."""
    topic = app.topic("payments", Payment)
    seen: list[int] = []

    @topic.subscribe("sink", order="key", retry="3 5s")
    def keep(payment: Payment, ctx: Context) -> None:
        if payment.n == 0 and ctx.attempt < 3:
            raise ValueError("no")
        seen.append(payment.n)
        if payment.n in (0, 2, 4):
            topic.publish(Payment(10 + payment.n), key="k")

    topic.publish_many([Payment(number) for number in range(6)], key=lambda _: "k")
    drain(app)

    assert [0, 1, 2, 3, 4, 5, 10, 12, 14] == seen


# ---------------------------------------------------------------------------------------------------------- T8: restore


def burn(count: int, number: int) -> None:
    """Use up transaction ids of a server."""
    with postgres.connect(number=number) as connection:
        connection.execute(
            f"DO $$ BEGIN FOR n IN 1..{count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )


def xid(number: int) -> int:
    """Return the next transaction id of a server."""
    with postgres.connect(number=number) as connection:
        return connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()[0]


def restored(schema: str, folder: Path) -> str:
    """Dump a schema with pg_dump, and restore it with pg_restore into a new database of a second server."""
    name, dump = f"restored_{postgres.fresh()}", str(folder / "dump")
    where = ["--host", postgres.server(), "--username", "postgres"]
    subprocess.run([postgres.tool("pg_dump"), *where, "-Fc", "-n", schema, "-f", dump, "postgres"], check=True)
    with postgres.connect(number=2) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    where = ["--host", postgres.server(2), "--username", "postgres"]
    subprocess.run([postgres.tool("pg_restore"), *where, "-d", name, dump], check=True)
    return postgres.url(schema, database=name, number=2)


@pytest.mark.case("T8")
@pytest.mark.parametrize("order", ["strict", "key"])
@pytest.mark.parametrize("lower", [True, False], ids=["lower xids", "higher xids"])
def test_a_restored_dump_is_refused_until_it_is_rebased(tmp_path: Path, *, lower: bool, order: str):
    """Refuse to start in a dump that another server, with lower or higher transaction ids, has restored; after the
    rebase nothing is skipped, and only events above the lowest unseen one of a shard are repeated."""
    app = App(postgres.url(schema := postgres.fresh()), clock=VirtualClock())
    topic = app.topic("payments", Payment)
    seen = sink(topic, order=order, **({} if order == "strict" else {"shards": 2}))
    topic.publish_many([Payment(number) for number in range(5)], key=lambda event: f"k{event.n}")
    drain(app)
    with postgres.connect(autocommit=False) as publisher:
        # The lowest unseen event: its transaction commits after the later ones were delivered.
        topic.publish(Payment(5), key="k5", using=publisher)
        topic.publish(Payment(6), key="k6")
        drain(app)
        publisher.commit()
    topic.publish(Payment(7), key="k7")
    burn(1 + max(0, xid(2) - xid(1)) + 200 if lower else 0, 1)
    # The numbers of the dump are those of the next transactions of the first server.
    topic.publish(Payment(8), key="k8")
    app.close()
    burn(0 if lower else 1 + max(0, xid(1) - xid(2)) + 200, 2)
    before = xid(1), xid(2)
    other = App(restored(schema, tmp_path), clock=VirtualClock())
    topic = other.topic("payments", Payment)
    again = sink(topic, order=order, **({} if order == "strict" else {"shards": 2}))
    topic.publish(Payment(9), key="k9")
    with pytest.raises(TopicsRestored, match="redrive topics rebase"):
        drain(other)
    rebased = other.topics.rebase()
    drain(other)
    topic.publish(Payment(10), key="k10")
    drain(other)
    other.close()

    assert lower == (before[0] > before[1])
    assert [0, 1, 2, 3, 4, 6] == sorted(seen)
    assert {5, 7, 8, 9, 10} <= set(again) <= {5, 6, 7, 8, 9, 10}
    assert len(set(again)) == len(again)
    assert 6 == min(first for _, first in rebased if first is not None)


# -------------------------------------------------------------------------------------------------------- T9: retention


@pytest.mark.case("T9")
def test_retention_deletes_nothing_unread(app: App):
    """Keep what a paused subscription has not read; forced, it is stored how much the subscription lacks."""
    topic = app.topic("payments", Payment, keep_for="1h")
    sink(topic, "reads")
    seen = sink(topic, "paused")

    @topic.subscribe("dies", order="none")
    def dies(payment: Payment) -> None:
        if payment.n == 1:
            raise ValueError("dead")

    app.topics.declare()
    handle = app.topics.subscription("payments", "paused")
    handle.pause()
    topic.publish_many([Payment(number) for number in range(5)])
    drain(app, within="1m")
    app.clock.advance("2h")
    kept = app.topics.prune("payments", keep_for="1h")
    forced = app.topics.prune("payments", keep_for="1h", force=True)
    handle.resume()
    drain(app, within="1m")

    assert (0, True) == (kept.deleted, kept.held)
    assert (5, {"paused": 5}, 5) == (forced.deleted, dict(forced.behind), handle.status().subscription.behind)
    assert ([], 1) == (seen, len(app.jobs.select(Filter(task="payments.dies", state=State.DEAD))))


@pytest.mark.case("T9")
def test_an_open_publisher_keeps_later_events(server: App):
    """Keep events while an older transaction may still publish, and delete them when all were delivered."""
    topic = server.topic("payments", Payment, keep_for="1h")
    seen = sink(topic)
    drain(server)
    with postgres.connect(autocommit=False) as publisher:
        topic.publish(Payment(1), using=publisher)
        topic.publish(Payment(2))
        drain(server)
        server.clock.advance("2h")
        assert 0 == server.topics.prune("payments", keep_for="1h").deleted
        publisher.commit()
    drain(server)
    topic.publish(Payment(3))
    drain(server)
    server.clock.advance("2h")
    deleted = server.topics.prune("payments", keep_for="1h").deleted

    assert ([2, 1, 3], True) == (seen, deleted >= 2)


# ------------------------------------------------------------------------------------------------------------------ T10


@pytest.mark.case("T10")
def test_two_events_of_a_batch_fail_alone(app: App):
    """Deliver 98 of 100 events once, and two by the policy."""
    topic = app.topic("payments", Payment)
    seen: list[int] = []

    @topic.subscribe("sink", order="none", batch=100, retry="2 1s")
    def keep(payments: list[Payment], ctx: Context) -> None:
        for payment in payments:
            if payment.n in (37, 62) and ctx.attempt < 3:
                ctx.fail(payment, ValueError("no"))
            else:
                seen.append(payment.n)

    topic.publish_many([Payment(number) for number in range(100)])
    drain(app)

    assert (list(range(100)), [37, 62]) == (sorted(seen), seen[-2:])
    assert 2 == len(app.jobs.select(Filter(task="payments.sink", state=State.SUCCEEDED)))


@pytest.mark.case("T10")
@pytest.mark.parametrize("order", ["key", "none"])
def test_a_reshard_loses_and_doubles_nothing(app: App, order: str):
    """Deliver each event once while the shards become four, in order by key if the subscription has one."""
    topic = app.topic("payments", Payment)
    seen = sink(topic, order=order, shards=2)
    handle = app.topics.subscription("payments", "sink")
    drain(app)
    for step in range(6):
        topic.publish_many([Payment(step * 10 + number) for number in range(10)], key=lambda event: f"k{event.n % 7}")
        if step == 2:
            handle.reshard(4)
        if step % 2:
            drain(app)
    drain(app)

    assert list(range(60)) == sorted(seen)
    assert (4, 4, None) == (
        len(handle.status().shards),
        handle.status().subscription.shards,
        handle.status().subscription.reshard,
    )
    if order == "key":
        for key in range(7):
            of_key = [number for number in seen if number % 7 == key]
            assert sorted(of_key) == of_key


@pytest.mark.case("T10")
def test_an_unknown_version_waits_and_is_shown(app: App):
    """Keep an event of a newer version for a worker that can read it, and state what the subscription waits for."""
    old = app.topic("payments", Payment)
    seen = sink(old)
    old.publish(Payment(1))
    drain(app)
    newer = App(app.url, clock=app.clock) if app.url != "memory://" and not app.url.startswith("turso") else None
    if newer is None:
        old.version = 3
        old.publish(Payment(2))
        old.version = 1
    else:
        topic = newer.topic("payments", Payment, version=3)
        again = sink(topic)
        topic.publish(Payment(2))
    drain(app, within="1s")
    (shard,) = app.topics.select()[0].shards

    assert ([1], 1) == (seen, app.topics.select()[0].lag.events)
    assert "has version 3, and this code has version 1 of the topic" in shard.stuck_why
    if newer is None:
        old.version = 3
        drain(app, within="1m")
        assert [1, 2] == seen
        return
    drain(newer, within="1m")
    newer.close()
    assert [2] == again


# ------------------------------------------------------------------------------------------------------------------ FTL


@pytest.mark.case("ftl.pubsub_validation: subscriber request type differs from topic event type")
@pytest.mark.case("ftl.pubsub_validation: subscriber has a response type (source)")
@pytest.mark.case("ftl.pubsub_validation: subscriber takes Unit (empty)")
def test_a_subscriber_takes_the_events_of_its_topic_and_returns_nothing(app: App):
    """Refuse another type, a result, and a function without a parameter, at the decorator."""
    topic = app.topic("payments", Payment)
    subscribe = topic.subscribe("sink")

    def other(event: int) -> None: ...

    def source(event: Payment) -> int:
        return event.n

    def empty() -> None: ...

    with pytest.raises(TaskDefinitionError, match="request type int differs from the event type Payment"):
        subscribe(other)
    with pytest.raises(TaskDefinitionError, match="must return nothing"):
        subscribe(source)
    with pytest.raises(TaskDefinitionError, match="it takes one event"):
        subscribe(empty)
    assert {} == dict(app.tasks)


@pytest.mark.case("ftl.pubsub_validation: subscribe to a subscription that does not exist")
@pytest.mark.case("ftl.pubsub_validation: subscription on an unknown topic")
@pytest.mark.case("ftl.pubsub_runtime: reset subscription")
def test_unknown_topics_and_subscriptions_are_refused(app: App):
    """Name the topic and the subscription that do not exist, and put the cursor of one that does at the end."""
    topic = app.topic("payments", Payment)
    seen = sink(topic)
    with pytest.raises(SubscriptionNotFound, match="the topic 'payments' has no subscription 'b'"):
        app.topics.subscription("payments", "b").move("end")
    with pytest.raises(SubscriptionNotFound, match="the topic 'other' has no subscription 'sink'"):
        app.topics.subscription("other", "sink").status()
    topic.publish(Payment(1))
    app.topics.declare()
    app.topics.subscription("payments", "sink").move("end")
    drain(app)

    assert [] == seen


@pytest.mark.case("ftl.pubsub_validation: one verb subscribed to two subscriptions of the same topic")
@pytest.mark.case("ftl.pubsub_runtime: two subscribers on one subscription")
def test_one_function_may_have_two_subscriptions(app: App):
    """Deliver each event to both subscriptions of a function; one subscription has one function."""
    topic = app.topic("payments", Payment)
    seen: list[int] = []

    def keep(payment: Payment) -> None:
        seen.append(payment.n)

    topic.subscribe("one")(keep)
    topic.subscribe("two")(keep)
    with pytest.raises(TaskDefinitionError, match=r"two tasks are called 'payments\.two'"):
        topic.subscribe("two")(keep)
    topic.publish(Payment(1))
    drain(app)

    assert [1, 1] == seen


@pytest.mark.case("ftl.pubsub_validation: publish to a topic of another module, compile time")
@pytest.mark.case("ftl.pubsub_validation: publish to a topic of another module, run time")
def test_only_the_types_of_a_topic_are_published(app: App):
    """Refuse another event before anything is written; whoever has the topic may publish to it."""
    topic = app.topic("payments", Payment)

    with pytest.raises(PayloadError, match="topic 'payments' takes events of the type Payment, got int: 7"):
        topic.publish(7)
    with pytest.raises(ConfigurationError, match="must not contain any of"):
        app.topic("other/module", Payment)
    assert () == app.topics.sizes()


@pytest.mark.case("ftl.pubsub_validation: later versions: dead letter topic name")
@pytest.mark.case("ftl.pubsub_validation: later versions: dead letter topic exists with another event type")
@pytest.mark.case("ftl.pubsub_validation: later versions: dead letter name clashes with a data type")
@pytest.mark.case("ftl.pubsub_runtime: later (Kafka) version: retry then dead letter")
def test_dead_events_are_jobs_and_can_be_published_by_their_catch_task(app: App):
    """Keep dead events as dead jobs, three attempts each; a catch task of the right type may publish them elsewhere."""
    topic = app.topic("payments", Payment)
    failed = app.topic("failed", Payment)
    letters = sink(failed, "letters")

    @app.task
    def bury(request: CatchRequest[Payment]) -> None:
        failed.publish(request.request)

    @app.task
    def wrong(request: CatchRequest[int]) -> None: ...

    @topic.subscribe("sink", retry="2 1s 1s catch bury")
    def sink_(payment: Payment) -> None:
        raise ValueError("always")

    with pytest.raises(CatchDefinitionError, match=r"it would have to take CatchRequest\[Payment\]"):

        @topic.subscribe("clash", retry="2 1s 1s catch wrong")
        def clash(payment: Payment) -> None: ...

    del app._registry.tasks["payments.clash"]
    topic.subscriptions.pop("clash", None)
    topic.publish_many([Payment(1), Payment(2)])
    drain(app)
    dead = app.jobs.select(Filter(task="payments.sink", state=State.DEAD, oldest_first=True))

    assert ([1, 2], [3, 3]) == (letters, [len(app.job(job.id).attempts) for job in dead])


@pytest.mark.case("ftl.pubsub_runtime: throughput")
@pytest.mark.case("ftl.pubsub_runtime: consumption delay")
@pytest.mark.case("ftl.pubsub_runtime: idle latency (PR #3237, later)")
@pytest.mark.case("ftl.pubsub_runtime: unit-test fake: forwarded event")
@pytest.mark.parametrize("kind", STORES)
def test_a_worker_delivers_and_forwards(kind: str, tmp_path: Path):
    """Deliver 200 events of 20 publishes, forward each to a second topic, and need no artificial delay."""
    with opened(kind, tmp_path) as url:
        app = App(url)
        topic, second = app.topic("first", Payment), app.topic("second", Payment)
        forwarded = sink(second)

        @topic.subscribe("forward")
        def forward(payment: Payment) -> None:
            second.publish(payment)

        async def run() -> None:
            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            for call in range(20):
                await topic.apublish_many([Payment(call * 10 + number) for number in range(10)])
            await eventually(lambda: len(forwarded) == 200)
            worker.stop()
            await running

        asyncio.run(run())
        lags = [each.lag.events for each in app.topics.select()]
        app.close()

    assert (list(range(200)), [0, 0]) == (forwarded, lags)


@pytest.mark.case("ftl.pubsub_runtime: one event at a time per subscription")
@pytest.mark.case("ftl.async_pubsub_retry_integration")
def test_the_next_event_waits_for_retries_and_catch(app: App):
    """Start an event when the one before is final, its retries and its catch task included; that fails once."""
    topic = app.topic("payments", Payment)
    steps: list[str] = []
    requests: list[CatchRequest[object]] = []

    @app.task
    def recover(request: CatchRequest[Payment], ctx: Context) -> None:
        steps.append(f"catch {request.request.n}")
        if ctx.failures == 0 and request.request.n == 1:
            raise ValueError("catching error")

    @app.task
    def recover_any(request: CatchRequest[object]) -> None:
        requests.append(request)

    @topic.subscribe("sink", retry="2 1s 1s catch recover")
    def keep(payment: Payment) -> None:
        steps.append(f"event {payment.n}")
        raise ValueError(f"always error: event {payment.n}")

    @topic.subscribe("any", retry="1 1s 1s catch recover_any")
    def keep_any(payment: Payment) -> None:
        raise ValueError("always")

    topic.publish_many([Payment(1), Payment(2)])
    drain(app)
    first = app.jobs.select(Filter(task="recover", oldest_first=True))[0]
    dead = app.jobs.select(Filter(task="payments.sink", oldest_first=True))[0]

    assert ["event 1"] * 3 + ["catch 1"] * 2 + ["event 2"] * 3 + ["catch 2"] == steps
    assert ["failed", "succeeded"] == [each.outcome for each in app.job(first.id).attempts]
    assert "always error: event 1" == dead.error
    assert [("payments.any", {"n": 1}, "Payment"), ("payments.any", {"n": 2}, "Payment")] == [
        (each.task, each.request, each.request_type.rpartition(".")[2]) for each in requests
    ]


@pytest.mark.case("ftl.pubsub_runtime: new subscription on a topic that has events")
def test_a_new_subscription_begins_with_the_oldest_event(app: App):
    """Begin at the oldest event unless the code has another start."""
    topic = app.topic("payments", Payment)
    first = sink(topic, "first")
    topic.publish_many([Payment(1), Payment(2)])
    drain(app)
    second, latest = sink(topic, "second"), sink(topic, "latest", start="latest")
    drain(app)
    topic.publish(Payment(3))
    drain(app)

    assert ([1, 2, 3], [1, 2, 3], [3]) == (first, second, latest)
