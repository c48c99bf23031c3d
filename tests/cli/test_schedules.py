"""`redrive schedules`: crons and refreshes for people and for programs, and acting on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from redrive.testing import drain
from tests.cli.conftest import Said

MARKET = '''
from datetime import UTC, datetime

from redrive import App, Disabled, GiveUp
from redrive.testing import VirtualClock

app = App("memory://", clock=VirtualClock(datetime(2026, 3, 28, 12, tzinfo=UTC)))


@app.cron("30 3 * * *", tz="Europe/Kyiv", retry="2 1s")
def night() -> None:
    """Do little."""


@app.task
def told(disabled: Disabled) -> None:
    """Hear of it."""


@app.refresh("""
    Refresh every 2 hours
    Allow 10 minutes
    On the first failure, retry after 1 hour
    Give up after the final unsuccessful retry
""", on_disabled=told)
def prices(shop: str) -> None:
    """Fail for some."""
    if shop == "away":
        raise ConnectionError("no route")
    if shop == "closed":
        raise GiveUp("the shop is [b]closed")
'''


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with a cron and a refresh, whose time stands still until told otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "market.py").write_text(MARKET)
    import market

    yield market
    market.app.close()
    del sys.modules["market"]


@pytest.fixture
def worked(market: ModuleType) -> ModuleType:
    """The same, a day and three things later."""
    for shop in ("open", "away", "closed"):
        market.prices.track(shop, shop)
    drain(market.app, within="1d")
    return market


@pytest.fixture
def say(redrive: Callable[..., Said]) -> Callable[..., str]:
    """Run a command that succeeds, and answer what it said."""

    def run(command: str, *words: str) -> str:
        said = redrive("schedules", command, "market:app", *words)
        assert (0, "") == (said.status, said.err)
        return said.out

    return run


@pytest.fixture
def tell(say: Callable[..., str]) -> Callable[..., list[dict[str, Any]]]:
    """Run a command that succeeds with --json, and answer the objects."""
    return lambda command, *words: [json.loads(line) for line in say(command, *words, "--json").splitlines()]


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [part.strip() for part in line.split("  ") if part.strip()]


# ------------------------------------------------------------------------------------------------------------- looking


@pytest.mark.usefixtures("market")
def test_what_no_worker_has_declared_is_listed(say: Callable[..., str]):
    """The list has what the code declares, also before a worker has started."""
    head, *lines = say("list").splitlines()

    assert ["name", "kind", "when", "next", "state", "last"] == cells(head)
    assert [
        ["night", "cron", "30 3 * * * in Europe/Kyiv", "-", "no worker has declared it yet"],
        ["prices", "refresh", "Refresh every 2 hours", "-", "no worker has declared it yet"],
    ] == [cells(line) for line in lines]


@pytest.mark.usefixtures("worked")
def test_schedules_are_listed_with_what_is_next_and_how_it_went(say: Callable[..., str]):
    """Of a cron the latest occurrence, of a refresh how many things are in trouble."""
    _, *lines = say("list").splitlines()
    night = "2026-03-30 00:30:00 UTC", "active", "2026-03-29 01:00:00 UTC started"
    prices = "2026-03-29 14:00:00 UTC", "active", "3 tracked, 2 given up"

    assert ["night", "cron", "30 3 * * * in Europe/Kyiv", *night] == cells(lines[0])
    assert ["prices", "refresh", "Refresh every 2 hours", *prices] == cells(lines[1])


def test_what_the_code_has_lost_is_listed(worked: ModuleType, say: Callable[..., str]):
    """The list says so; what was declared is still known."""
    worked.app.tasks.pop("night")
    worked.prices.pause()
    _, lost, paused = say("list").splitlines()

    assert "30 3 * * * in Europe/Kyiv" == cells(lost)[2]
    assert "not in the code of this app" == cells(lost)[4]
    assert ["-", "paused since 2026-03-29 12:00:00 UTC"] == cells(paused)[3:5]


def test_what_only_a_newer_redrive_can_read_is_listed(worked: ModuleType, say: Callable[..., str]):
    """It is there, and says why no more is known."""
    worked.app.store.script(lambda cursor: cursor.execute("UPDATE redrive_schedules SET document = '{}'"))

    assert ["declared by a newer redrive"] * 2 == [cells(line)[2] for line in say("list").splitlines()[1:]]
    assert "declared by a newer redrive" in say("show", "night").splitlines()
    assert "  declared by a newer redrive" in say("show", "prices", "open").splitlines()


@pytest.mark.usefixtures("worked")
def test_programs_read_the_list(tell: Callable[..., list[dict[str, Any]]]):
    """One object in a line for each schedule, with all that is known of it."""
    night, prices = tell("list")

    assert ("night", "cron", "active", True) == tuple(night[name] for name in ("name", "kind", "state", "in_code"))
    assert ("2026-03-30T00:30:00Z", "2026-03-29T01:00:00Z") == (night["due_at"], night["last"]["occurs_at"])
    assert ("30 3 * * *", "skip") == (night["definition"]["pattern"], night["definition"]["overlap"])
    assert (3, 2, None) == (prices["counts"]["tracked"], prices["counts"]["disabled"], prices["last"])


@pytest.mark.usefixtures("market")
def test_programs_read_what_no_worker_has_declared(tell: Callable[..., list[dict[str, Any]]]):
    """What the code says is there, and what the database would say is null."""
    night, _ = tell("list")

    assert ("Europe/Kyiv", None, None) == (night["definition"]["tz"], night["declared_at"], night["due_at"])


@pytest.mark.usefixtures("worked")
def test_a_cron_is_shown(say: Callable[..., str]):
    """What was declared, the next five occurrences on both clocks, and what became of past ones."""
    lines = say("show", "night").splitlines()

    assert [
        "cron night: active",
        "declared 2026-03-28 12:00:00 UTC",
        "when: 30 3 * * * in Europe/Kyiv",
        "overlap: skip, catch-up: one",
        "jobs: night on default, priority 0; Calls up to 3 times; waits 1s, 2s; at most 3s of waiting in all.",
        "next: 2026-03-30 00:30:00 UTC",
        "  2026-03-30 00:30:00 UTC   Mon 2026-03-30 03:30:00 EEST",
    ] == lines[:7]
    assert (5, "occurrence") == (len([line for line in lines if line.endswith("EEST")]), cells(lines[11])[0])
    assert ["2026-03-29 01:00:00 UTC", "2026-03-29 01:00:00 UTC", "started"] == cells(lines[12])[:3]


def test_the_window_is_shown_where_it_matters(market: ModuleType, say: Callable[..., str]):
    """That is where all is caught up on."""
    market.app.cron("@daily", name="all", overlap="allow", catch_up="all", window="2h")(lambda: None)

    assert "overlap: allow, catch-up: all within 2h" in say("show", "all").splitlines()


@pytest.mark.usefixtures("worked")
def test_a_refresh_is_shown(say: Callable[..., str]):
    """Its policy in English, and the things that are in trouble."""
    lines = say("show", "prices").splitlines()

    assert [
        "policy:",
        "  Refresh every 2 hours",
        "  Allow 10 minutes to complete",
        "  On the first failure, retry after 1 hour",
    ] == lines[2:6]
    assert "on_disabled: told on default" in lines
    assert "items: 3 tracked, 2 given up" in lines
    assert [
        ["away", "given up: Cannot refresh after 2 attempt(s)", "2", "2026-03-28 12:00:00 UTC"],
        ["closed", "given up: the shop is [b]closed", "1", "2026-03-28 12:00:00 UTC"],
    ] == [cells(line) for line in lines[-2:]]


def test_a_refresh_without_things_is_shown(market: ModuleType, say: Callable[..., str]):
    """Nothing is tracked, and nothing."""
    market.app.refresh("Refresh every hour", name="bare")(lambda: None)
    lines = say("show", "bare").splitlines()

    assert {"items: none", "on_disabled: nothing"} <= set(lines)


@pytest.mark.usefixtures("worked")
def test_programs_read_a_schedule(tell: Callable[..., list[dict[str, Any]]]):
    """What comes, what came, and what is in trouble."""
    (night,), (prices,) = tell("show", "night"), tell("show", "prices")

    assert "2026-03-30T00:30:00Z" == night["next"][0]
    assert ["2026-03-29T01:00:00Z"] == [each["occurs_at"] for each in night["occurrences"]]
    assert ["away", "closed"] == [each["key"] for each in prices["troubled"]]


@pytest.mark.usefixtures("worked")
def test_a_thing_is_shown_in_full(say: Callable[..., str], tell: Callable[..., list[dict[str, Any]]]):
    """Every field of its state, its arguments and its policy."""
    lines = say("show", "prices", "away").splitlines()
    (plain,) = tell("show", "prices", "away")

    assert "prices/away: given up: Cannot refresh after 2 attempt(s)" == lines[0]
    assert 'tracked 2026-03-28 12:00:00 UTC, arguments {"shop":"away"}' == lines[1]
    assert {"policy, of the refresh:", "attempt_no: 2", "deadline_at: -", "disabled_until_update: True"} <= set(lines)
    assert ({"shop": "away"}, "away", True) == (plain["payload"], plain["key"], plain["disabled_until_update"])
    assert plain["policy"].startswith("Refresh every 2 hours\n")


def test_a_policy_of_its_own_is_shown(market: ModuleType, say: Callable[..., str]):
    """With whose it is."""
    market.prices.keeping(policy="Refresh every day", at_once=False).track("1", "open")
    lines = say("show", "prices", "1").splitlines()

    assert ["prices/1: fresh, due 2026-03-29 00:00:00 UTC", "policy, its own:", "  Refresh every day at 00:00"] == [
        lines[0],
        *lines[2:4],
    ]


def test_things_say_where_they_stand(market: ModuleType, say: Callable[..., str]):
    """Running, failing, paused or completed."""
    market.prices.track("run", "open")
    running = say("show", "prices", "run").splitlines()[0]
    market.prices.track("away", "away")
    drain(market.app, within="1s")
    failing = say("show", "prices", "away").splitlines()[0]
    with pytest.warns(RuntimeWarning, match="refresh 'once' has no occurrence any more"):
        once = market.app.refresh('Refresh by rule "FREQ=DAILY;COUNT=1"', name="once")(lambda: None)
    once.track("1")
    drain(market.app, within="2d")

    assert "prices/run: attempt 1 runs as job 1" == running
    assert "prices/away: failing, due 2026-03-28 13:00:00 UTC" == failing
    assert "once/1: completed" == say("show", "once", "1").splitlines()[0]


# -------------------------------------------------------------------------------------------------------------- acting


def test_a_cron_is_triggered(worked: ModuleType, say: Callable[..., str], tell: Callable[..., list[dict[str, Any]]]):
    """It says which job was made, and stands in the audit log with who did it."""
    said = say("trigger", "night", "--actor", "ann")
    (plain,) = tell("trigger", "night")
    last, first = worked.night.occurrences(limit=2)

    assert f"cron night was started as job {first.job_id}\n" == said
    assert ("triggered by ann", last.job_id) == (first.note, plain["job_id"])
    assert "ann" == worked.app.database.audit()[1].actor


def test_a_thing_is_triggered(worked: ModuleType, say: Callable[..., str]):
    """It says which job was made."""
    said = say("trigger", "prices", "open")

    assert f"prices/open: attempt 1 runs as job {worked.prices.get('open').job_id}\n" == said


def test_a_thing_that_was_given_up_is_updated(
    worked: ModuleType, redrive: Callable[..., Said], say: Callable[..., str]
):
    """To trigger it is an error that says what helps; to update it is what helps."""
    refused = redrive("schedules", "trigger", "market:app", "prices", "closed")
    said = say("update", "prices", "closed", "--actor", "ann")

    assert (1, "prices/closed was given up (the shop is [b]closed) until it is updated") == (
        refused.status,
        refused.err.removeprefix("redrive: ").partition(":")[0],
    )
    assert f"prices/closed: attempt 1 runs as job {worked.prices.get('closed').job_id}\n" == said
    assert [("update", "ann")] == [(each.action, each.actor) for each in worked.app.database.audit()]


@pytest.mark.usefixtures("worked")
def test_a_schedule_is_paused_and_resumed(say: Callable[..., str], tell: Callable[..., list[dict[str, Any]]]):
    """Pause and resume say where it stands then."""
    assert "cron night: paused since 2026-03-29 12:00:00 UTC\n" == say("pause", "night")
    assert "cron night: active\n" == say("resume", "night")
    assert ["2026-03-29T12:00:00Z"] == [each["paused_at"] for each in tell("pause", "prices")]
    assert "refresh prices: active\n" == say("resume", "prices")


@pytest.mark.usefixtures("worked")
def test_a_thing_is_paused_and_resumed(say: Callable[..., str], tell: Callable[..., list[dict[str, Any]]]):
    """The other things go on."""
    assert "prices/open: paused, fresh, due 2026-03-29 14:00:00 UTC\n" == say("pause", "prices", "open")
    assert [False] == [each["paused"] for each in tell("resume", "prices", "open")]


def test_a_paused_schedule_shows_what_would_come(worked: ModuleType, say: Callable[..., str]):
    """Occurrences are counted from now on, as they are after a resume."""
    worked.night.pause()
    worked.app.clock.advance("3d")
    lines = say("show", "night").splitlines()

    assert ["next: -", "  2026-04-02 00:30:00 UTC   Thu 2026-04-02 03:30:00 EEST"] == lines[5:7]


@pytest.mark.parametrize("since", ["2026-03-25", "2026-03-25T02:00+02:00"])
def test_occurrences_are_backfilled(worked: ModuleType, say: Callable[..., str], since: str):
    """An instant without an offset is UTC; doing it twice is doing it once."""
    first, second = (say("backfill", "night", "--since", since) for _ in range(2))

    assert ("cron night: 4 occurrences were started\n", "cron night: 0 occurrences were started\n") == (first, second)
    assert datetime(2026, 3, 25, 1, 30, tzinfo=UTC) == worked.night.occurrences()[-1].occurs_at


@pytest.mark.usefixtures("worked")
def test_programs_read_what_was_backfilled(tell: Callable[..., list[dict[str, Any]]]):
    """The occurrences that were started."""
    (plain,) = tell("backfill", "night", "--since", "2026-03-25", "--until", "2026-03-26")

    assert ["2026-03-25T01:30:00Z"] == [each["occurs_at"] for each in plain["started"]]


@pytest.mark.usefixtures("worked")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("show", "nope"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("show", "prices", "nope"), 1, "prices does not track an item with the key 'nope'"),
        (("trigger", "nope"), 1, "there is no schedule 'nope'"),
        (("trigger", "prices"), 1, "the schedule 'prices' is a refresh: say of which key"),
        (("trigger", "night", "key"), 1, "the schedule 'night' is a cron: it has no keys"),
        (("pause", "nope"), 1, "there is no schedule 'nope'"),
        (("resume", "prices", "nope"), 1, "prices does not track an item with the key 'nope'"),
        (("backfill", "prices", "--since", "2026-03-25"), 1, "'prices' is a refresh: it has no occurrences"),
        (("backfill", "night", "--since", "2026-03-25", "--until", "2027-01-01"), 2, "that is not past"),
        (("backfill", "night", "--since", "yesterday"), 2, "'yesterday' is not an instant; write 2026-03-01"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    redrive: Callable[..., Said], words: tuple[str, ...], status: int, message: str
):
    """The status is 1 where the thing could not be had, and 2 for a wrong call."""
    command, *rest = words
    said = redrive("schedules", command, "market:app", *rest)

    assert (status, "") == (said.status, said.out)
    assert message in said.err


def test_an_app_without_schedules_has_an_empty_list(shop: Any, redrive: Callable[..., Said]):
    """The head of the table, and nothing below it; the error of a name says that there are none."""
    listed = redrive("schedules", "list", "shop:app").out.splitlines()
    refused = redrive("schedules", "show", "shop:app", "nope").err

    assert [["name", "kind", "when", "next", "state", "last"]] == [cells(line) for line in listed]
    assert "redrive: there is no schedule 'nope'; there are: none at all\n" == refused
    assert () == shop.schedules.select()
