"""Worker processes that deliver events are killed: what is delivered again, and in which order."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from redrive.engine.records import Filter
from tests.acceptance.processes import Deployment, stage

WORK = '''
"""The app of these tests: a subscription that is killed in the middle of a window, and one by key."""

import asyncio
import inspect
import os
import signal
from pathlib import Path

from redrive import App, Context
from redrive.runtime import feeder

HERE = Path(__file__).parent
# The position is written every thousand events, and not because of time.
feeder.FLUSH_FOR = 3600.0
URL = (HERE / "url").read_text()
app = App(URL, heartbeat_every="200ms", lease_for=os.environ.get("LEASE_FOR", "3s"))
numbers = app.topic("numbers", int)
clicks = app.topic("clicks", tuple[str, int])
LOG = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
count = 0


def note(*words: object) -> None:
    """Write one line."""
    os.write(LOG, (" ".join(map(str, words)) + "\\n").encode())


def counted(limits: list[int]) -> None:
    """Die without clean-up after some effects, once for each limit."""
    global count
    count += 1
    died = len(list(HERE.glob("died*")))
    if died < len(limits) and count == limits[died]:
        (HERE / f"died{died}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


if (HERE / "plain").exists():

    @numbers.subscribe("log")
    async def log(number: int, ctx: Context) -> None:
        """Note the event."""
        note("number", number, ctx.redelivered)
        counted([1700])


if (HERE / "transaction").exists():

    SCHEMA = f"{URL.rpartition('schema=')[2]}." if "schema=" in URL else ""

    @numbers.subscribe("log")
    async def effect(number: int, ctx: Context) -> None:
        """Write a row with the end of the delivery."""
        async with ctx.transaction() as connection:
            done = connection.execute(f"INSERT INTO {SCHEMA}effects VALUES ({number})")
            if inspect.isawaitable(done):
                await done
        counted([85])


if (HERE / "slow").exists():

    @numbers.subscribe("log", order=(HERE / "slow").read_text(), retry="5 100ms", at_once=20)
    async def slow(number: int, ctx: Context) -> None:
        """Note the event; the first one takes until the worker has been killed, and the second one fails first."""
        if number == 0 and not (HERE / "died0").exists():
            await asyncio.sleep(3600)
        if number == 1 and ctx.attempt == 1:
            raise ValueError("no")
        note("number", number, ctx.redelivered)
        counted([1700])


if (HERE / "keys").exists():

    @clicks.subscribe("log", order="key", retry=f"3 {os.environ.get('RETRY', '1s')}", dead=(HERE / "keys").read_text())
    async def click(event: tuple[str, int], ctx: Context) -> None:
        """Note the event; the first of one key fails."""
        if event == ("k", -1) and ctx.attempt <= int((HERE / "fails").read_text()):
            raise ValueError("no")
        note("click", event[0], event[1], ctx.redelivered)
        counted([int((HERE / "kills").read_text())] * 2)
'''

LONG = os.environ.get("REDRIVE_CHAOS") == "long"

PATIENCE = 120


@pytest.fixture(name="kills", params=["sqlite", "postgres"])
def _kills(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    way = request.node.callspec.params["way"]
    if way.startswith("slow "):
        (tmp_path / "slow").write_text(way.split()[1])
    else:
        (tmp_path / (way if way in {"plain", "transaction"} else "keys")).write_text(
            "hold" if way == "hold" else "continue"
        )
    (tmp_path / "fails").write_text("3" if way == "succeeds" else "9")
    (tmp_path / "kills").write_text(f"{60 * keys(way)}")
    with stage(tmp_path, request.param, work=WORK) as opened:
        opened.lease_for = "3s"
        yield opened


def keys(way: str) -> int:
    """Return the number of other keys; where a key is held, the most events may pass it."""
    return 100 if LONG or way == "hold" else 20


def publish(kills: Deployment, count: int, late: Sequence[int]) -> Callable[[], None]:
    """Publish numbers, and return what publishes the late ones: on PostgreSQL their ids are lower."""
    numbers = kills.module.numbers
    kills.app.topics.declare()
    if kills.kind == "sqlite":
        numbers.publish_many(range(count))
        return lambda: numbers.publish_many(late)
    publisher = connected(kills)
    numbers.publish_many(late, using=publisher)
    numbers.publish_many(range(count))

    def commit() -> None:
        publisher.commit()
        publisher.close()

    return commit


@pytest.mark.case("T5")
@pytest.mark.parametrize("way", ["plain"])
def test_a_kill_repeats_only_what_was_not_written(kills: Deployment, way: str):
    """Of 3,000 events 1,700 have effects, and 1,000 or more of these are written: the others are delivered again,
    marked; 500 events that commit later, with lower ids, are delivered once, unmarked."""
    late = range(10_000, 10_500)
    commit_late = publish(kills, 3000, late)
    kills.worker().popen.wait(PATIENCE)
    written = kills.app.topics.select()[0].shards[0].at_id - (len(late) if kills.kind == "postgres" else 0)
    commit_late()
    kills.worker()
    kills.until(lambda: len(kills.noted("number")) >= 1700 + 3000 - written + 500, patience=PATIENCE)
    seen = [(int(number), mark == "True") for number, mark in map(str.split, kills.noted("number"))]

    # The position is also written with each page that is read.
    assert 1000 <= written < 1700
    assert [*range(1700), *range(written, 3000), *late] == [number for number, _ in seen]
    again = 1700 - written
    assert [False] * 1700 + [True] * again == [mark for _, mark in seen[: 1700 + again]]
    assert not any(mark for number, mark in seen if number >= late[0])


@pytest.mark.case("T5")
@pytest.mark.parametrize("way", ["transaction"])
def test_effects_in_the_transaction_of_a_delivery_are_not_doubled(kills: Deployment, way: str):
    """Of 150 events 85 have effects when the worker is killed, and 25 commit later with lower ids: each has one."""
    late = range(10_000, 10_025)
    commit_late = publish(kills, 150, late)
    rows(kills, "CREATE TABLE effects (n bigint)")
    kills.worker().popen.wait(PATIENCE)
    assert [(85,)] == rows(kills, "SELECT count(*) FROM effects")
    commit_late()
    kills.worker()
    kills.until(lambda: rows(kills, "SELECT count(*) FROM effects")[0][0] >= 175, patience=PATIENCE)

    assert [*range(150), *late] == [n for (n,) in rows(kills, "SELECT n FROM effects ORDER BY n")]


@pytest.mark.case("T5")
# tests/runtime/test_feeders.py has both orders.
@pytest.mark.parametrize("way", ["slow key", pytest.param("slow none", marks=pytest.mark.night)])
def test_a_kill_behind_a_slow_event_repeats_only_what_was_not_written(kills: Deployment, way: str):
    """Of 2,500 events the first is slow and the second fails once; the worker is killed after 1,700 further events: no
    more than 1,000 follow again, marked, and the failed event has one job."""
    kills.app.topics.declare()
    kills.module.numbers.publish_many(range(2500), key=lambda number: f"k{number}")
    kills.worker().popen.wait(PATIENCE)
    kills.worker()

    def seen() -> list[tuple[int, bool]]:
        return [(int(number), mark == "True") for number, mark in map(str.split, kills.noted("number"))]

    kills.until(lambda: len({number for number, _ in seen()}) == 2500, patience=PATIENCE)
    before = {number for number, _ in seen()[:1700]}
    again = [mark for number, mark in seen()[1700:] if number in before]

    assert len(again) <= 1000
    assert all(again)
    assert len(before) == 1700
    assert len(again) + 2500 == len(seen())
    assert 1 == len(kills.app.jobs.select(Filter(task="numbers.log")))


@pytest.mark.case("T7")
# `test_a_failing_key_holds_no_other` proves the order for each rule.
@pytest.mark.parametrize(
    "way",
    [pytest.param("succeeds", marks=pytest.mark.night), pytest.param("continue", marks=pytest.mark.night), "hold"],
)
def test_a_failing_key_stays_in_order_through_two_kills(kills: Deployment, way: str, monkeypatch: pytest.MonkeyPatch):
    """The first event of a key fails three times, and 200 of the key and of each other key follow, while two workers
    are killed: no other key waits, and the key follows in order, or as the rule for dead events says. Where the key is
    held, and always in the long form, 100 other keys have 20,000 events. Attempts are 1 s apart, and 5 s in the long
    form."""
    count = 200 * keys(way)
    monkeypatch.setenv("RETRY", "5s" if LONG else "1s")
    clicks = kills.module.clicks
    clicks.publish(("k", -1), key="k")
    for place in range(200):
        events = [("k", place), *((f"o{number}", place) for number in range(keys(way)))]
        clicks.publish_many(events, key=lambda event: event[0])
    kills.worker().popen.wait(PATIENCE)
    kills.worker().popen.wait(PATIENCE)
    kills.worker()

    def others() -> int:
        return len({line.rpartition(" ")[0] for line in kills.noted("click") if line[0] == "o"})

    kills.until(lambda: others() == count, patience=PATIENCE)
    if way == "hold":
        held = kills.app.topics.subscription("clicks", "log")
        kills.until(lambda: held.status().lag.dead == 1, patience=PATIENCE)
        assert [] == [line for line in kills.noted("click") if line.startswith("k ")]
        held.skip()
    wanted = ([-1] if way == "succeeds" else []) + list(range(200))

    def of(key: str) -> list[int]:
        lines = [line.split() for line in kills.noted("click")]
        return list(dict.fromkeys(int(number) for name, number, _ in lines if name == key))

    kills.until(lambda: len(of("k")) >= len(wanted), patience=PATIENCE)
    assert wanted == of("k")
    assert [] == [key for key in range(keys(way)) if of(f"o{key}") != list(range(200))]


def connected(kills: Deployment) -> psycopg.Connection:
    """Open a connection of the user, with the tables of redrive in its path."""
    url, _, rest = kills.app.url.partition("?")
    schema = dict(part.split("=") for part in rest.split("&"))["schema"]
    host = dict(part.split("=") for part in rest.split("&"))["host"].replace("%2F", "/")
    connection = psycopg.connect(host=host, user="postgres", dbname=url.rpartition("/")[2])
    connection.execute(f"SET search_path TO {schema}")
    connection.commit()
    return connection


def rows(kills: Deployment, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in the database of the app, and return its rows."""
    if kills.kind == "postgres":
        with connected(kills) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
    with contextlib.closing(sqlite3.connect(kills.folder / "jobs.db", timeout=30)) as connection, connection:
        return connection.execute(statement).fetchall()
