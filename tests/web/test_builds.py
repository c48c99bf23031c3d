"""What changed with the newest build: the failures of each task before and after workers began to run it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive.engine.counters import BUCKETS, MinuteSums, TallyRows
from redrive.stores.operations import counters, retention, workers
from redrive.testing import VirtualClock
from tests.stores.helpers import empty
from tests.web.client import Operator

AT = datetime(2026, 11, 28, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Fleet:
    """Workers of several builds, and what they count.

    Args:
        url: of the database.
        task: that the app has.
    """

    def __init__(self, url: str, task: str = "charge") -> None:
        self.clock = VirtualClock(AT)
        self.app = redrive.App(url, clock=self.clock)
        self.app.task(name=task)(_nothing)
        self.app.open()

    def starts(self, build: str | None, *tasks: str) -> int:
        """Start a worker with a build, and return its id."""
        number: int = self.app.store.run(
            workers.register(
                "w", concurrency=1, lease_for=timedelta(days=60), build=build, tasks=tasks or None, now=self.app.now()
            )
        )
        return number

    def stops(self, worker: int) -> None:
        """Let a worker leave."""
        self.app.store.run(workers.leave(worker, now=self.app.now()))

    def counts(self, worker: int, succeeded: int, died: int, task: str = "charge", lost: int = 0) -> None:
        """Write what a worker has counted in this minute."""
        start = self.app.now().replace(second=0, microsecond=0)
        row = MinuteSums(start, worker, "q", task, succeeded, 0, died, 0, lost, 0, [0] * (len(BUCKETS) + 1))
        self.app.store.run(counters.write_counters(TallyRows((row,), (), ())))

    def read(self) -> Any:
        """Return the comparison."""
        return Operator(self.app).read("/builds")

    def rolls_up(self) -> None:
        """Add up the rows that are old enough."""
        after = AT - timedelta(days=1)
        while (end := self.app.store.run(counters.roll_up(0, after, now=self.app.now()))) is not None:
            after = end


def _nothing() -> None: ...


@pytest.fixture(params=["file", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """Yield an app without workers."""
    with empty(request.param, tmp_path) as url:
        found = Fleet(url)
        yield found
        found.app.close()


def _shares(page: Any) -> list[tuple[str, int, float | None, int, float | None, float | None, bool]]:
    return [
        (
            each["task"], each["before"]["ended"], each["before"]["failing"], each["after"]["ended"],
            each["after"]["failing"], each["difference"], each["worse"],
        )
        for each in page["items"]
    ]  # fmt: skip


def _deploy(fleet: Fleet) -> tuple[int, int]:
    """Replace a worker of 1.0 that has counted by one of 2.0."""
    old = fleet.starts("1.0")
    fleet.clock.advance("10m")
    fleet.counts(old, 99, 1)
    fleet.clock.advance("10m")
    new = fleet.starts("2.0")
    fleet.stops(old)
    fleet.clock.advance("10m")
    return old, new


def test_the_failures_of_a_task_are_compared(fleet: Fleet):
    """The share that failed is that of the build of the worker; lost attempts are no failure of either build."""
    _, new = _deploy(fleet)
    fleet.counts(new, 30, 10, lost=7)
    fleet.counts(new, 1, 0, task="unknown here")
    page = fleet.read()
    html = Operator(fleet.app).get("/builds").text

    assert [("charge", 100, 1.0, 40, 25.0, 24.0, True)] == _shares(page)
    assert ("2.0", "1.0", False, []) == (page["build"], page["before"], page["is_back"], page["others"])
    assert ("2026-11-28T01:20:00Z", "2026-11-28T01:00:00Z") == (page["since"], page["before_from"])
    assert "1 task fails more since build 2.0" in html
    assert "+24.0 points" in html


def test_two_builds_side_by_side_are_told_apart(fleet: Fleet):
    """During a deploy each attempt counts for the build of its worker, and the page says that both run."""
    old = fleet.starts("1.0")
    fleet.clock.advance("10m")
    new = fleet.starts("2.0")
    fleet.clock.advance("10m")
    fleet.counts(old, 100, 0)
    fleet.counts(new, 50, 50)
    page = fleet.read()

    assert [("charge", 100, 0.0, 100, 50.0, 50.0, True)] == _shares(page)
    assert ([{"build": "1.0", "workers": 1}], None) == (page["others"], page["unclear_until"])
    assert "1 live worker runs build 1.0 beside it" in Operator(fleet.app).get("/builds").text


def test_what_was_added_up_while_both_ran_is_left_out(fleet: Fleet):
    """Rows of all workers become one after two hours: then the time of the deploy belongs to no build."""
    old = fleet.starts("1.0")
    fleet.counts(old, 10, 0)
    fleet.clock.advance("20m")
    new = fleet.starts("2.0")
    fleet.clock.advance("15m")
    fleet.counts(old, 100, 0)
    fleet.counts(new, 0, 100)
    fleet.stops(old)
    fleet.clock.advance("20m")
    fleet.counts(new, 9, 1)
    fleet.clock.advance("4h")
    fleet.rolls_up()
    page = fleet.read()

    assert [("charge", 10, 0.0, 10, 10.0, 10.0, True)] == _shares(page)
    assert "2026-11-28T01:40:00Z" == page["unclear_until"]
    assert "are left out: workers of both builds were running" in Operator(fleet.app).get("/builds").text


def test_a_rollback_is_said(fleet: Fleet):
    """A build that runs again is compared with the one that it has replaced, also after that was forgotten."""
    old, new = _deploy(fleet)
    fleet.counts(new, 50, 50)
    fleet.clock.advance("10m")
    again = fleet.starts("1.0")
    fleet.stops(new)
    fleet.clock.advance("10m")
    fleet.counts(again, 100, 0)
    page = fleet.read()
    fleet.app.store.run(retention.forget_workers(left_for=timedelta(0), now=fleet.app.now()))
    later = fleet.read()

    assert ("1.0", "2.0", True) == (page["build"], page["before"], page["is_back"])
    assert [("charge", 100, 50.0, 100, 0.0, -50.0, False)] == _shares(page)
    assert ("1.0", "2.0", True, page["since"]) == (later["build"], later["before"], later["is_back"], later["since"])
    assert "again since" in Operator(fleet.app).get("/builds").text
    assert old not in {again, new}


def test_a_restart_is_no_change(fleet: Fleet):
    """A worker that starts again with its build, and one of the old build during a deploy, change no instant."""
    _, new = _deploy(fleet)
    fleet.stops(new)
    fleet.clock.advance("10m")
    fleet.starts("2.0")
    page = fleet.read()

    assert ("2.0", "1.0", "2026-11-28T01:20:00Z") == (page["build"], page["before"], page["since"])


def test_an_old_deploy_is_known_by_the_first_start(fleet: Fleet):
    """Workers that left are forgotten after a day; the first start of a build is kept with the counters."""
    _, new = _deploy(fleet)
    fleet.clock.advance("30h")
    fleet.starts("2.0")
    fleet.stops(new)
    fleet.app.store.run(retention.forget_workers(left_for=timedelta(0), now=fleet.app.now()))
    page = fleet.read()

    assert ("2.0", "1.0", "2026-11-28T01:20:00Z") == (page["build"], page["before"], page["since"])
    assert "2026-11-29T01:20:00Z" == page["until"]


def test_builds_of_another_app_do_not_count(fleet: Fleet):
    """A worker without a task of the code belongs to another app in the same database."""
    _, new = _deploy(fleet)
    other = fleet.starts("7.7", "foreign")
    fleet.clock.advance("1m")
    fleet.counts(other, 0, 50, task="foreign")
    fleet.counts(new, 10, 0)
    page = fleet.read()

    assert ("2.0", "1.0", []) == (page["build"], page["before"], page["others"])
    assert [("charge", 100, 1.0, 10, 0.0, -1.0, False)] == _shares(page)


def test_a_build_without_attempts_has_no_share(fleet: Fleet):
    """Nothing is compared before an attempt has ended, and a task that is new has no difference."""
    _deploy(fleet)
    before = fleet.read()
    html = Operator(fleet.app).get("/builds").text

    assert [("charge", 100, 1.0, 0, None, None, False)] == _shares(before)
    assert "No task fails more since build 2.0" in html


def test_no_build_is_known(fleet: Fleet):
    """Without a worker that says its build, the page says how one is named."""
    fleet.starts(None)

    assert (None, []) == (fleet.read()["build"], fleet.read()["items"])
    assert "REDRIVE_BUILD" in Operator(fleet.app).get("/builds").text


def test_a_first_build_has_nothing_before_it(fleet: Fleet):
    """The build before it is not known, and no attempt is before it."""
    first = fleet.starts("1.0")
    fleet.clock.advance("5m")
    fleet.counts(first, 1, 1)
    page = fleet.read()

    assert (None, [("charge", 0, None, 2, 50.0, None, False)]) == (page["before"], _shares(page))
    assert "the build before it is not known" in Operator(fleet.app).get("/builds").text
