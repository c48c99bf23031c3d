"""The big tables: on lists of Redis, on jobs of redrive, and kept by redrive, with everything lost that can be."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from redis import Redis
from sqlalchemy import select
from sqlalchemy.orm import Session

from redrive.testing import VirtualClock, drain
from tests.contrib.redis.rig.server import RedisServer
from tests.contrib.refresh.conftest import quick
from tests.debian import needed, program

EXAMPLE = Path(__file__).parents[2] / "examples" / "big_tables"

BROKEN = "https://example.com/broken"


class Example:
    """The modules of the example, on a database of the test's own, with time that jumps."""

    def __init__(self, names: list[str]) -> None:
        self.tables = importlib.import_module("tables")
        self.tables.clock = self.clock = VirtualClock()
        self.download = importlib.import_module("download")
        self.download.fetch = self._fetch
        self.parts = SimpleNamespace(**{each: importlib.import_module(each) for each in names})
        self.tables.Base.metadata.create_all(quick(self.tables.engine))
        self.pages = {"https://example.com/big": 3}

    def _fetch(self, url: str) -> int:
        found = self.pages[url]  # LookupError, as for a page that is not there
        if isinstance(found, Exception):
            raise found
        return found

    def save(self, **fields) -> int:
        """Save a new table, or edit the one with this number."""
        with Session(self.tables.engine) as session, session.begin():
            table = session.merge(self.tables.BigTable(customer="anna@example.com", **fields))
            self.tables.save(session, table)
            return table.id

    def table(self, number: int = 1):
        """Read a table."""
        with Session(self.tables.engine) as session:
            return session.get(self.tables.BigTable, number)

    def letters(self) -> list[str]:
        """Read the messages to customers."""
        with Session(self.tables.engine) as session:
            return [each.text for each in session.scalars(select(self.tables.Letter))]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Make the modules of the example importable under their own names; `modules()` forgets them."""
    monkeypatch.setenv("TABLES_FOLDER", str(tmp_path))
    monkeypatch.syspath_prepend(EXAMPLE)

    def forget() -> None:
        for name in ("plan", "tables", "download", "lists", "jobs", "managed"):
            sys.modules.pop(name, None)

    forget()
    yield forget
    forget()


@pytest.fixture
def example(modules):
    """Load the modules of the example, new ones for each test."""
    made: list[Example] = []

    def load(*names: str) -> Example:
        modules()
        made.append(Example(list(names)))
        return made[-1]

    yield load
    for each in made:
        each.tables.engine.dispose()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    """Run a real server."""
    binary = needed("redis-server", lambda: program("redis-server"))
    with RedisServer(binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(redis_server):
    """Connect a client to it, and empty it."""
    with Redis(port=redis_server.port) as redis:
        redis.flushall()
        yield redis


class OnLists:
    """The example on lists of Redis, one step at a time."""

    def __init__(self, example, redis) -> None:
        self.example, self.redis = example("lists"), redis
        self.lists = self.example.parts.lists

    def start(self) -> int:
        """Start what is due."""
        return self.lists.start(self.redis)

    def run(self) -> None:
        """Run the workers and the pollers until no message is left."""
        self.lists.work(self.redis, "anna")
        self.lists.poll(self.redis, "berta")

    def lose(self) -> None:
        """Whatever is on its way is lost."""
        self.redis.flushall()

    def close(self) -> None:
        """End."""


class OnJobs:
    """The example on jobs of redrive, one step at a time."""

    def __init__(self, example) -> None:
        self.example = example("jobs")
        self.jobs = self.example.parts.jobs
        self.jobs.app.open()

    def start(self) -> int:
        """Start what is due."""
        return self.jobs.start()

    def run(self) -> None:
        """Run the jobs of both queues."""
        drain(self.jobs.app)

    def lose(self) -> None:
        """Cancel a job: without that no order is lost here."""
        for job in self.jobs.app.jobs.select():
            self.jobs.app.job(job.id).cancel()

    def close(self) -> None:
        """End."""
        self.jobs.app.close()


@pytest.fixture(params=["lists", "jobs"])
def big(request, example):
    """Return the example in both forms."""
    made = OnJobs(example) if request.param == "jobs" else OnLists(example, request.getfixturevalue("redis"))
    yield made
    made.close()


def test_a_table_is_filled_at_once_and_then_twice_per_day(big):
    """Saved tables are fetched at once, and then at 6 AM."""
    big.example.save(input_url="https://example.com/big")

    assert 1 == big.start()
    big.run()

    table = big.example.table()
    assert (3, 0, 6) == (table.lines, table.attempt_no, table.refresh_at.hour)
    assert 0 == big.start()


def test_a_failure_is_retried(big):
    """After a short failure of the site, one retry follows at once."""
    big.example.pages["https://example.com/big"] = TimeoutError("the site is asleep")
    big.example.save(input_url="https://example.com/big")
    big.start()
    big.run()
    big.example.pages["https://example.com/big"] = 5

    assert 1 == big.start()
    assert 2 == big.example.table().attempt_no
    big.run()

    assert 5 == big.example.table().lines


def test_two_starters_start_a_table_once(big):
    """Two processes poll for due tables: one of them starts the table."""
    big.example.save(input_url="https://example.com/big")

    assert 1 == big.start() + big.start()


def test_a_lost_answer_is_a_failure_at_its_deadline(big):
    """Lost orders and lost answers delay a table for the timeout at most."""
    big.example.save(input_url="https://example.com/big")
    big.start()
    big.lose()
    assert 0 == big.start()
    big.example.clock.advance("1h")

    assert 1 == big.start()
    assert 2 == big.example.table().attempt_no
    big.run()

    assert 3 == big.example.table().lines


def test_a_late_answer_is_stale(big):
    """Late answers, after the deadline was swept, change no table."""
    big.example.save(input_url="https://example.com/big")
    big.start()
    big.example.clock.advance("1h")
    with Session(big.example.tables.engine) as session, session.begin():
        big.example.tables.moves(session).sweep()

    big.run()

    assert (None, 1) == (big.example.table().lines, big.example.table().attempt_no)


def test_a_wrong_url_is_given_up_with_a_letter_until_it_is_edited(big):
    """Customers get one message, with the text of the worker; an edit starts again."""
    number = big.example.save(input_url=BROKEN)
    big.start()
    big.run()
    for _ in range(3):
        big.example.clock.advance("1d")
        assert 0 == big.start()

    assert [f"the BigTable refresh has been disabled. Provided URL is invalid: {BROKEN}"] == big.example.letters()
    assert f"Provided URL is invalid: {BROKEN}" == big.example.table().disabled_reason
    big.example.save(id=number, input_url="https://example.com/big")
    assert 1 == big.start()
    big.run()
    assert (3, None) == (big.example.table().lines, big.example.table().disabled_reason)


def test_the_seventh_failure_gives_up(big):
    """Seven attempts, with the delays of the policy between them, are followed by a message to the customer."""
    big.example.pages["https://example.com/big"] = TimeoutError("the site is asleep")
    big.example.save(input_url="https://example.com/big")
    waits = []
    for _ in range(7):
        big.start()
        big.run()
        due = big.example.table().refresh_at
        if due:
            waits.append(int((due - big.example.clock.now()).total_seconds() // 60))
            big.example.clock.advance(due - big.example.clock.now())

    assert [0, 1, 5, 15, 30, 60] == waits
    assert ["the BigTable refresh has been disabled. Cannot refresh after 7 attempt(s)"] == big.example.letters()


def test_an_edit_makes_a_running_attempt_stale(big):
    """If a table is edited while its old URL is being fetched, only the new one counts."""
    number = big.example.save(input_url=BROKEN)
    big.start()
    big.example.save(id=number, input_url="https://example.com/big")
    big.run()
    assert not big.example.table().disabled_until_update

    big.start()
    big.run()

    assert 3 == big.example.table().lines


def test_a_poller_killed_after_its_commit_answers_twice(example, redis):
    """After a restart the poller reads its message again, the answer is stale, and the list becomes empty."""
    big = OnLists(example, redis)
    big.example.save(input_url="https://example.com/big")
    big.start()
    big.lists.work(redis, "anna")
    for message in big.lists.messages(redis, big.lists.OUTPUT, "berta"):
        with Session(big.example.tables.engine) as session, session.begin():
            big.example.tables.settle(session, big.lists.json.decode(message, type=big.example.download.Result))
        break  # and dies
    assert 1 == redis.llen("bigtables-output:berta")

    big.lists.poll(redis, "berta")

    assert 0 == redis.llen("bigtables-output:berta")
    assert (3, 0) == (big.example.table().lines, big.example.table().attempt_no)


def test_two_pollers_share_the_answers(example, redis):
    """Each answer is read by one of them, and all are written."""
    big = OnLists(example, redis)
    for _ in range(6):
        big.example.save(input_url="https://example.com/big")
    assert 6 == big.start()
    big.lists.work(redis, "anna")
    one = big.lists.messages(redis, big.lists.OUTPUT, "one")
    seen = [next(one)]

    other = list(big.lists.messages(redis, big.lists.OUTPUT, "other"))
    one.close()
    big.lists.poll(redis, "one")

    assert 5 == len(other)
    assert 6 == len({*seen, *other})
    assert 3 == big.example.table(1).lines


def test_a_reader_may_wait_for_a_message(example, redis):
    """With a time to wait the reader asks the server to wait."""
    big = OnLists(example, redis)
    redis.rpush("letters", "first")
    reader = big.lists.messages(redis, "letters", "anna", wait=5)

    assert b"first" == next(reader)
    redis.rpush("letters", "second")
    assert b"second" == next(reader)
    reader.close()


class Managed:
    """The example as redrive keeps all of it, on a database of the test's own, with time that jumps."""

    def __init__(self) -> None:
        self.managed = importlib.import_module("managed")
        self.managed.app.clock = self.clock = VirtualClock()
        self.managed.download.fetch = self._fetch
        self.connection = self.managed.open_database()
        self.pages = {"https://example.com/big": 3}
        self.fetched: list[str] = []

    def _fetch(self, url: str) -> int:
        self.fetched.append(f"{self.clock.now():%H:%M}")
        found = self.pages[url]  # LookupError, as for a page that is not there
        if isinstance(found, Exception):
            raise found
        return found() if callable(found) else found

    def save(self, url: str, number: int | None = None) -> int:
        """Save a new table, or edit the one with this number."""
        return self.managed.save(self.connection, "anna@example.com", url, number)

    def run(self, span: str = "1h") -> None:
        """Run workers for this long."""
        drain(self.managed.app, within=span)

    def lines(self) -> list[int | None]:
        """Read the contents of the tables."""
        return [lines for (lines,) in self.connection.execute("SELECT lines FROM big_tables ORDER BY id")]

    def letters(self) -> list[str]:
        """Read the messages to customers."""
        return [text for (text,) in self.connection.execute("SELECT text FROM letters ORDER BY id")]

    def close(self) -> None:
        """End."""
        self.connection.close()
        self.managed.app.close()


@pytest.fixture
def managed(modules):
    """Return the managed example."""
    modules()
    made = Managed()
    yield made
    made.close()


def test_a_managed_table_is_filled_at_once_and_then_twice_per_day(managed):
    """Saved tables are fetched at once, and then at 6 AM and 4 PM."""
    number = managed.save("https://example.com/big")
    managed.run("1d")

    assert (1, [3], ["00:00", "06:00", "16:00"]) == (number, managed.lines(), managed.fetched)


def test_the_seventh_failure_of_a_managed_table_gives_up(managed):
    """Seven attempts, with the delays of the policy between them, are followed by a message to the customer."""
    managed.pages["https://example.com/big"] = TimeoutError("the site is asleep")
    managed.save("https://example.com/big")
    managed.run("3d")

    assert ["00:00", "00:00", "00:01", "00:06", "00:21", "00:51", "01:51"] == managed.fetched
    letter = "the BigTable refresh has been disabled. Cannot refresh after 7 attempt(s)"
    assert [letter] == managed.letters()


def test_a_wrong_url_of_a_managed_table_is_given_up_with_a_letter_until_it_is_edited(managed):
    """Customers get one message, with the text of the handler; an edit starts again."""
    number = managed.save(BROKEN)
    managed.run("3d")
    assert [f"the BigTable refresh has been disabled. Provided URL is invalid: {BROKEN}"] == managed.letters()

    managed.save("https://example.com/big", number)
    managed.run("1s")
    assert ([3], 2) == (managed.lines(), len(managed.fetched))


def test_a_superseded_fetch_of_an_edited_table_writes_nothing(managed):
    """If a table is edited while its old page is fetched, only the new one counts."""
    managed.pages["https://example.com/old"] = lambda: managed.save("https://example.com/big", 1) and 99
    managed.save("https://example.com/old")
    managed.run("1s")

    assert ([3], 2) == (managed.lines(), len(managed.fetched))


def test_a_deleted_managed_table_is_not_refreshed(managed):
    """Delete its row and its refresh in one transaction."""
    managed.save("https://example.com/big")
    managed.run("1s")
    managed.managed.remove(managed.connection, 1)
    managed.run("3d")

    assert ([], 1) == (managed.lines(), len(managed.fetched))
