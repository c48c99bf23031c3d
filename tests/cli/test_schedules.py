"""`redrive schedules`: crons and refreshes for readers and for programs, and actions on them."""

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
from redrive.web import NoAuth, create_app
from tests.cli.conftest import Output
from tests.web.client import Client

MARKET = '''
from datetime import UTC, datetime

from redrive import App, Disabled, GiveUp
from redrive.testing import VirtualClock

app = App("memory://", clock=VirtualClock(datetime(2026, 3, 28, 12, tzinfo=UTC)))


@app.cron("30 3 * * *", tz="Europe/Kyiv", retry="2 1s")
def night() -> None:
    """Do little."""


@app.task
def notified(disabled: Disabled) -> None:
    """Hear of it."""


@app.task
def tell(tenant: int) -> None:
    """Do nothing."""


@app.refresh("""
    Refresh every 2 hours
    Allow 10 minutes
    On the first failure, retry after 1 hour
    Give up after the final unsuccessful retry
""", on_disabled=notified)
def prices(shop: str) -> None:
    """Fail for some."""
    if shop == "away":
        raise ConnectionError("no route")
    if shop == "closed":
        raise GiveUp("the shop is [b]closed")
'''


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module with a cron and a refresh, and a clock that stands still until a test moves it."""
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
    """Return the same module a day and three tracked items later."""
    for shop in ("open", "away", "closed"):
        market.prices.track(shop, shop)
    drain(market.app, within="1d")
    return market


@pytest.fixture
def shown(redrive: Callable[..., Output]) -> Callable[..., str]:
    """Run a command that succeeds, and return its output."""

    def run(command: str, *words: str) -> str:
        text = redrive("schedules", command, "market:app", *words)
        assert (0, "") == (text.status, text.err)
        return text.out

    return run


@pytest.fixture
def parsed(shown: Callable[..., str]) -> Callable[..., list[dict[str, Any]]]:
    """Run a command that succeeds with --json, and return the objects."""
    return lambda command, *words: [json.loads(line) for line in shown(command, *words, "--json").splitlines()]


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [part.strip() for part in line.split("  ") if part.strip()]


# ------------------------------------------------------------------------------------------------------------- looking


@pytest.mark.usefixtures("market")
def test_schedules_that_no_worker_has_declared_are_listed(shown: Callable[..., str]):
    """List the declarations of the code, also before a worker has started."""
    head, *lines = shown("list").splitlines()

    assert ["name", "kind", "when", "next", "state", "last"] == cells(head)
    assert [
        ["night", "cron", "30 3 * * * in Europe/Kyiv", "-", "no worker has declared it yet"],
        ["prices", "refresh", "Refresh every 2 hours", "-", "no worker has declared it yet"],
    ] == [cells(line) for line in lines]


def test_the_dashboard_shows_what_the_command_line_shows(
    market: ModuleType, parsed: Callable[..., list[dict[str, Any]]]
):
    """Over a change of the clocks and an outage, both have the same occurrences, reasons and next times."""
    drain(market.app, within="20h")
    market.app.clock.advance("3d")
    drain(market.app, within="1h")
    (printed,) = parsed("show", "night")
    page = Client(create_app(market.app, auth=NoAuth())).get("/api/v1/schedules/night").json()

    assert printed == page | {"at": printed["at"]}
    assert ["2026-04-01T00:30:00Z", "2026-03-29T01:00:00Z"] == [each["occurs_at"] for each in page["past"]]
    assert "those since 2026-03-30 00:30:00 UTC are left out" in page["past"][0]["note"]


@pytest.mark.usefixtures("worked")
def test_schedules_are_listed_with_their_next_and_last_occurrence(shown: Callable[..., str]):
    """Show the latest occurrence of a cron, and the number of items in trouble of a refresh."""
    _, *lines = shown("list").splitlines()
    night = "2026-03-30 00:30:00 UTC", "active", "2026-03-29 01:00:00 UTC started"
    prices = "2026-03-29 14:00:00 UTC", "active", "3 tracked, 2 given up"

    assert ["night", "cron", "30 3 * * * in Europe/Kyiv", *night] == cells(lines[0])
    assert ["prices", "refresh", "Refresh every 2 hours", *prices] == cells(lines[1])


def test_schedules_that_the_code_no_longer_declares_are_listed(worked: ModuleType, shown: Callable[..., str]):
    """List schedules that the code no longer declares, marked as such."""
    worked.app.tasks.pop("night")
    worked.prices.pause(actor="ann")
    _, lost, paused = shown("list").splitlines()

    assert "30 3 * * * in Europe/Kyiv" == cells(lost)[2]
    assert "not in the code of this app" == cells(lost)[4]
    assert ["-", "paused since 2026-03-29 12:00:00 UTC by ann"] == cells(paused)[3:5]


def test_schedules_of_a_newer_redrive_are_listed(worked: ModuleType, shown: Callable[..., str]):
    """List a schedule of a newer redrive, with the reason why its details are missing."""
    worked.app.store.script(lambda cursor: cursor.execute("UPDATE redrive_schedules SET document = '{}'"))

    assert ["declared by a newer redrive"] * 2 == [cells(line)[2] for line in shown("list").splitlines()[1:]]
    assert "declared by a newer redrive" in shown("show", "night").splitlines()
    assert "  declared by a newer redrive" in shown("show", "prices", "open").splitlines()


@pytest.mark.usefixtures("worked")
def test_the_list_can_be_printed_as_json(parsed: Callable[..., list[dict[str, Any]]]):
    """Print one object per line for each schedule, with all its fields."""
    night, prices = parsed("list")

    assert ("night", "cron", [], False) == tuple(night[name] for name in ("name", "kind", "remarks", "created"))
    assert ("2026-03-30T00:30:00Z", "2026-03-29T01:00:00Z") == (night["due_at"], night["last"]["occurs_at"])
    assert "30 3 * * * in Europe/Kyiv" == night["when"]
    assert (3, 2, None) == (prices["tracked"]["value"], prices["troubled"]["value"], prices["last"])


@pytest.mark.usefixtures("market")
def test_json_lists_schedules_that_no_worker_has_declared(parsed: Callable[..., list[dict[str, Any]]]):
    """Print the declaration of the code, and null for the fields of the database."""
    night, _ = parsed("list")

    assert ("30 3 * * * in Europe/Kyiv", None, True) == (night["when"], night["due_at"], bool(night["remarks"]))


@pytest.mark.usefixtures("worked")
def test_a_cron_is_shown(shown: Callable[..., str]):
    """Print the declaration, the next five occurrences on both clocks, and the outcomes of past ones."""
    lines = shown("show", "night").splitlines()

    assert [
        "cron night: active",
        "declared 2026-03-28 12:00:00 UTC",
        "when: 30 3 * * * in Europe/Kyiv, at 03:30 every day",
        "overlap: skip, catch-up: one",
        "jobs: night on default, priority 0; Calls up to 3 times; waits 1s, 2s; at most 3s of waiting in all.",
        "next: 2026-03-30 00:30:00 UTC",
        "  2026-03-30 00:30:00 UTC   Mon 2026-03-30 03:30:00 EEST",
    ] == lines[:7]
    assert (5, "occurrence") == (len([line for line in lines if line.endswith("EEST")]), cells(lines[11])[0])
    assert ["2026-03-29 01:00:00 UTC", "2026-03-29 01:00:00 UTC", "started"] == cells(lines[12])[:3]


def test_the_window_is_shown_for_catch_up_all(market: ModuleType, shown: Callable[..., str]):
    """Show the window if all missed occurrences are caught up on."""
    market.app.cron("@daily", name="all", overlap="allow", catch_up="all", window="2h")(lambda: None)

    assert "overlap: allow, catch-up: all within 2h" in shown("show", "all").splitlines()


@pytest.mark.usefixtures("worked")
def test_a_refresh_is_shown(shown: Callable[..., str]):
    """Print its policy in English, and the items that are in trouble."""
    lines = shown("show", "prices").splitlines()

    assert [
        "policy:",
        "  Refresh every 2 hours",
        "  Allow 10 minutes to complete",
        "  On the first failure, retry after 1 hour",
    ] == lines[2:6]
    assert "on_disabled: notified on default" in lines
    assert "items: 3 tracked, 2 given up" in lines
    assert [
        ["away", "given up: Cannot refresh after 2 attempt(s)", "2", "2026-03-28 12:00:00 UTC"],
        ["closed", "given up: the shop is [b]closed", "1", "2026-03-28 12:00:00 UTC"],
    ] == [cells(line) for line in lines[-2:]]


def test_a_refresh_without_items_is_shown(market: ModuleType, shown: Callable[..., str]):
    """Print that no item is tracked, and no table."""
    market.app.refresh("Refresh every hour", name="bare")(lambda: None)
    lines = shown("show", "bare").splitlines()

    assert {"items: none", "on_disabled: nothing"} <= set(lines)


@pytest.mark.usefixtures("worked")
def test_a_schedule_can_be_printed_as_json(parsed: Callable[..., list[dict[str, Any]]]):
    """Print the next and past occurrences, and the items in trouble."""
    (night,), (prices,) = parsed("show", "night"), parsed("show", "prices")

    assert "2026-03-30T00:30:00Z" == night["line"]["next"][0]
    assert ["2026-03-29T01:00:00Z"] == [each["occurs_at"] for each in night["past"]]
    assert ["away", "closed"] == [each["key"] for each in prices["in_trouble"]]


@pytest.mark.usefixtures("worked")
def test_an_item_is_shown_in_full(shown: Callable[..., str], parsed: Callable[..., list[dict[str, Any]]]):
    """Every field of its state, its arguments and its policy."""
    lines = shown("show", "prices", "away").splitlines()
    (plain,) = parsed("show", "prices", "away")

    assert "prices/away: given up: Cannot refresh after 2 attempt(s)" == lines[0]
    assert 'tracked 2026-03-28 12:00:00 UTC, arguments {"shop":"away"}' == lines[1]
    assert {"policy, of the refresh:", "attempt_no: 2", "deadline_at: -", "disabled_until_update: True"} <= set(lines)
    assert ({"shop": "away"}, "away", "given up") == (plain["payload"], plain["key"], plain["standing"])
    assert "Refresh every 2 hours" == plain["policy"][0]


def test_an_items_own_policy_is_shown(market: ModuleType, shown: Callable[..., str]):
    """Show the policy with its source."""
    market.prices.keeping(policy="Refresh every day", at_once=False).track("1", "open")
    lines = shown("show", "prices", "1").splitlines()

    assert ["prices/1: fresh, due 2026-03-29 00:00:00 UTC", "policy, its own:", "  Refresh every day at 00:00"] == [
        lines[0],
        *lines[2:4],
    ]


def test_items_show_their_state(market: ModuleType, shown: Callable[..., str]):
    """Running, failing, paused or completed."""
    market.prices.track("run", "open")
    running = shown("show", "prices", "run").splitlines()[0]
    market.prices.track("away", "away")
    drain(market.app, within="1s")
    failing = shown("show", "prices", "away").splitlines()[0]
    with pytest.warns(RuntimeWarning, match="refresh 'once' has no occurrence any more"):
        once = market.app.refresh('Refresh by rule "FREQ=DAILY;COUNT=1"', name="once")(lambda: None)
    once.track("1")
    drain(market.app, within="2d")

    assert "prices/run: attempt 1 runs as job 1" == running
    assert "prices/away: failing, due 2026-03-28 13:00:00 UTC" == failing
    assert "once/1: completed" == shown("show", "once", "1").splitlines()[0]


# -------------------------------------------------------------------------------------------------------------- acting


def test_a_cron_is_triggered(
    worked: ModuleType, shown: Callable[..., str], parsed: Callable[..., list[dict[str, Any]]]
):
    """Print the new job, and record the action and its actor in the audit log."""
    text = shown("trigger", "night", "--actor", "ann")
    (plain,) = parsed("trigger", "night")
    last, first = worked.night.occurrences(limit=2)

    assert f"cron night was started as job {first.job_id}\n" == text
    assert ("triggered by ann", last.job_id) == (first.note, int(plain["note"].rpartition(" ")[2]))
    assert "ann" == worked.app.database.audit()[1].actor


def test_an_item_is_triggered(worked: ModuleType, shown: Callable[..., str]):
    """Print the new job."""
    text = shown("trigger", "prices", "open")

    assert f"prices/open: attempt 1 runs as job {worked.prices.get('open').job_id}\n" == text


def test_an_item_that_was_given_up_is_updated(
    worked: ModuleType, redrive: Callable[..., Output], shown: Callable[..., str]
):
    """Triggering it is an error that names the remedy; updating it is the remedy."""
    refused = redrive("schedules", "trigger", "market:app", "prices", "closed")
    text = shown("update", "prices", "closed", "--actor", "ann")

    assert (1, "prices/closed was given up (the shop is [b]closed) until it is updated") == (
        refused.status,
        refused.err.removeprefix("redrive: ").partition(":")[0],
    )
    assert f"prices/closed: attempt 1 runs as job {worked.prices.get('closed').job_id}\n" == text
    assert [("update", "ann")] == [(each.action, each.actor) for each in worked.app.database.audit()]


@pytest.mark.usefixtures("worked")
def test_a_schedule_is_paused_and_resumed(shown: Callable[..., str], parsed: Callable[..., list[dict[str, Any]]]):
    """Print the new state after pause and resume."""
    assert "cron night: paused since 2026-03-29 12:00:00 UTC by ann\n" == shown("pause", "night", "--actor", "ann")
    assert "cron night: active\n" == shown("resume", "night")
    assert ["refresh prices is paused"] == [each["note"] for each in parsed("pause", "prices")]
    assert "refresh prices: active\n" == shown("resume", "prices")


def test_a_schedule_is_stopped_with_its_jobs(worked: ModuleType, shown: Callable[..., str]):
    """The operation is carried out to its end."""
    worked.night.trigger()
    text = shown("stop", "night", "--why", "too many", "--actor", "ann")
    (latest,) = worked.night.occurrences(limit=1)

    assert text.startswith("cron night is paused, and operation 1 cancels its jobs: 1")
    assert "cancelled" == worked.app.job(latest.job_id).state
    assert "cron night is paused, and has no job to cancel\n" == shown("stop", "night")


@pytest.mark.usefixtures("worked")
def test_an_item_is_paused_and_resumed(shown: Callable[..., str], parsed: Callable[..., list[dict[str, Any]]]):
    """Pause one item, while the others continue."""
    assert "prices/open: paused, fresh, due 2026-03-29 14:00:00 UTC\n" == shown("pause", "prices", "open")
    assert ["prices/open is resumed"] == [each["note"] for each in parsed("resume", "prices", "open")]


def test_a_paused_schedule_shows_its_next_occurrence(worked: ModuleType, shown: Callable[..., str]):
    """Occurrences are counted from now on, as they are after a resume."""
    worked.night.pause()
    worked.app.clock.advance("3d")
    lines = shown("show", "night").splitlines()

    assert lines[11].startswith("to clear it: redrive schedules resume ")
    assert lines[11].endswith(":app night")
    assert ["next: -", "  2026-04-02 00:30:00 UTC   Thu 2026-04-02 03:30:00 EEST"] == lines[5:7]


@pytest.mark.parametrize("since", ["2026-03-25", "2026-03-25T02:00+02:00"])
def test_occurrences_are_backfilled(worked: ModuleType, shown: Callable[..., str], since: str):
    """Read an instant without an offset as UTC; a repeated backfill changes nothing."""
    first, second = (shown("backfill", "night", "--since", since) for _ in range(2))

    assert ("cron night: 4 occurrences were started\n", "cron night: 0 occurrences were started\n") == (first, second)
    assert datetime(2026, 3, 25, 1, 30, tzinfo=UTC) == worked.night.occurrences()[-1].occurs_at


@pytest.mark.usefixtures("worked")
def test_json_lists_backfilled_occurrences(parsed: Callable[..., list[dict[str, Any]]]):
    """Print the occurrences that were started."""
    (plain,) = parsed("backfill", "night", "--since", "2026-03-25", "--until", "2026-03-26")

    assert ["2026-03-25T01:30:00Z"] == [each["occurs_at"] for each in plain["started"]]


@pytest.mark.usefixtures("worked")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("show", "nope"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("show", "prices", "nope"), 1, "prices does not track an item with the key 'nope'"),
        (("trigger", "nope"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("trigger", "nope", "key"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("update", "nope", "key"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("backfill", "nope", "--since", "2026-03-25"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("delete", "nope"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("trigger", "prices"), 1, "the schedule 'prices' is a refresh: name its key"),
        (("trigger", "night", "key"), 1, "the schedule 'night' is a cron: it has no keys"),
        (("pause", "nope"), 1, "there is no schedule 'nope'; there are: night, prices"),
        (("resume", "prices", "nope"), 1, "prices does not track an item with the key 'nope'"),
        (("backfill", "prices", "--since", "2026-03-25"), 1, "'prices' is a refresh: it has no occurrences"),
        (("backfill", "night", "--since", "2026-03-25", "--until", "2027-01-01"), 2, "that is not past"),
        (("backfill", "night", "--since", "yesterday"), 2, "'yesterday' is not an instant; write 2026-03-01"),
    ],
)
def test_an_impossible_action_is_one_line(
    redrive: Callable[..., Output], words: tuple[str, ...], status: int, message: str
):
    """Exit with 1 if the item does not exist, and with 2 for a wrong call."""
    command, *rest = words
    text = redrive("schedules", command, "market:app", *rest)

    assert (status, "") == (text.status, text.out)
    assert message in text.err


def test_an_app_without_schedules_has_an_empty_list(shop: Any, redrive: Callable[..., Output]):
    """Print the head of an empty table; an unknown name raises an error that there are none."""
    shop.open()
    listed = redrive("schedules", "list", "shop:app").out.splitlines()
    refused = redrive("schedules", "show", "shop:app", "nope").err

    assert [["name", "kind", "when", "next", "state", "last"]] == [cells(line) for line in listed]
    assert "redrive: there is no schedule 'nope'; there are: none at all\n" == refused
    assert () == shop.schedules.select()


# ------------------------------------------------------------------------------------------------- created at run time


def test_a_cron_is_created_and_deleted(market: ModuleType, shown: Callable[..., str], parsed: Callable[..., Any]):
    """Creation prints the next occurrence; the list and the page have the cron until it is deleted."""
    created = shown("create", "acme", "0 3 * * *", "tell", "--arguments", '{"tenant": 7}', "--tz", "Europe/Kyiv")
    (row,) = (each for each in parsed("list") if "acme" == each["name"])
    page = shown("show", "acme")
    deleted = shown("delete", "acme")

    assert "cron acme: active, next 2026-03-29 01:00:00 UTC\n" == created
    assert (True, [], None) == (row["created"], row["remarks"], row["paused_at"])
    assert "created at run time, 2026-03-28 12:00:00" in page
    assert "cron acme is deleted\n" == deleted
    assert ["night", "prices"] == [each["name"] for each in parsed("list")]


def test_a_created_cron_is_replaced_on_demand(market: ModuleType, redrive: Callable[..., Output]):
    """Other values are refused with a line that names --replace."""
    first = ("schedules", "create", "market:app", "acme", "@daily", "tell", "--arguments", '{"tenant": 7}')
    redrive(*first)
    refused = redrive(*first, "--queue", "slow")
    replaced = redrive(*first, "--queue", "slow", "--replace", "--json")

    assert (2, "redrive: the cron 'acme' exists with other values: replace=True (--replace) changes them\n") == (
        refused.status,
        refused.err,
    )
    assert "tell on slow" in json.loads(replaced.out)["jobs"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("acme", "@daily", "nobody"), "market:app has no task 'nobody'; known tasks: night, notified, prices, tell"),
        (("acme", "61 * * * *", "tell", "--arguments", '{"tenant": 7}'), "cron 'acme': "),
        (("acme", "@daily", "tell", "--arguments", "[7]"), "--arguments is a JSON object"),
        (("night", "@daily", "tell", "--arguments", '{"tenant": 7}'), "cron 'night': the code declares a schedule"),
    ],
)
def test_wrong_crons_are_refused(
    market: ModuleType, redrive: Callable[..., Output], words: tuple[str, ...], message: str
):
    """Print one line with what was wrong, and store nothing."""
    text = redrive("schedules", "create", "market:app", *words)

    assert 2 == text.status
    assert message in text.err
    assert () == market.app.schedules.select()


def test_crons_without_the_arguments_of_the_task_are_refused(market: ModuleType, redrive: Callable[..., Output]):
    """Arguments are checked at the creation, and not first in the job."""
    text = redrive("schedules", "create", "market:app", "acme", "@daily", "tell")

    assert (2, "redrive: tell: argument 'tenant' is missing") == (text.status, text.err[:43])
    assert () == market.app.schedules.select()


def test_a_cron_in_intervals_with_jitter_is_shown(market: ModuleType, shown: Callable[..., str]):
    """The pattern, the jitter, and the start of each of the next occurrences are printed."""
    shown("create", "often", "every 90 minutes", "tell", "--arguments", '{"tenant": 7}', "--jitter", "20m")
    lines = shown("show", "often").splitlines()

    assert "when: every 90 minutes in UTC, each up to 20m later" in lines
    assert 5 == sum("   starts 20" in line for line in lines)
