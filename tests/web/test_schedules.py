"""The pages of crons and refreshes: the list, one of them, one item, and actions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

import redrive
from redrive.operate import operations
from redrive.operate import schedules as pages
from redrive.testing import VirtualClock, drain
from tests.web.client import Operator

POLICY = "Refresh every 2 hours; allow 1 minute; retry 2 times every 5 minutes; then email the customer that it is off"


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a cron and a refresh, three hours after the start."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.cron("0 * * * *", tz="Europe/Kyiv")
    def hourly() -> None:
        """Do nothing."""

    @app.refresh(POLICY)
    def table(url: str, token: str = "") -> None:
        """Fail for one address."""
        if "broken" in url:
            raise ConnectionError(url)

    app.open()
    table.track("a/fine", "fine")
    table.track("b/broken", "broken", "canary-1")
    drain(app, within="3h")
    table.track("c/new", "broken once")
    drain(app, within="1m")
    yield app
    app.close()


@pytest.fixture
def client(app: redrive.App) -> Operator:
    """Return a client that may operate."""
    return Operator(app)


def test_schedules_are_listed_with_words_and_what_happened(client: Operator):
    """Crons have words, the next times and the last decision; refreshes have numbers of items."""
    cron, refresh = client.read("/schedules")["items"]

    assert ("hourly", "cron", "at the start of every hour") == (cron["name"], cron["kind"], cron["words"])
    assert 3 == len(cron["next"])
    assert "started" == cron["last"]["decision"]
    assert ({"value": 3, "capped": False}, {"value": 2, "capped": False}) == (refresh["tracked"], refresh["troubled"])


def test_the_list_is_paged_by_name(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """Each schedule is on exactly one page."""
    monkeypatch.setattr(pages, "SHOWN", 1)
    first = client.read("/schedules")
    second = client.read(f"/schedules?after={first['after']}")

    assert (["hourly"], "hourly") == ([each["name"] for each in first["items"]], first["after"])
    assert (["table"], None) == ([each["name"] for each in second["items"]], second["after"])


def test_a_cron_shows_each_occurrence_with_its_job(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """Decided occurrences are listed, the latest first, on pages, with the job of each."""
    monkeypatch.setattr(pages, "SHOWN", 2)
    first = client.read("/schedules/hourly")
    rest = client.read(f"/schedules/hourly?before={first['before']}")

    assert (2, 10) == (len(first["past"]), len(first["line"]["next"]))
    assert all(each["job"] for each in first["past"])
    assert first["past"][-1]["occurs_at"] > rest["past"][0]["occurs_at"]
    assert ("skip", "one", None) == (first["overlap"], first["catch_up"], first["skips"])
    assert "What became of its occurrences" in client.get("/schedules/hourly").text


def test_a_cron_shows_what_became_of_its_jobs():
    """Outcomes have the jobs that died, the share of failures and the days of a month; the list shows that it fails."""
    app = redrive.App("memory://", clock=VirtualClock(datetime(2026, 3, 1, 12, tzinfo=UTC)))
    deaths: list[str] = []

    @app.cron("0 4 * * *", tz="Europe/Kyiv", retry="1 1m")
    def reconcile(context: redrive.Context) -> None:
        """Succeed for two nights, the second time after a retry, then fail with a secret."""
        deaths.append("")
        if len(deaths) == 2 or len(deaths) > 3:
            raise KeyError("ledger_id")

    app.open()
    drain(app, within="5d")
    client = Operator(app)
    data, (line,) = client.read("/schedules/reconcile"), client.read("/schedules")["items"]
    html, listed = client.get("/schedules/reconcile").text, client.get("/schedules").text
    found, march = data["line"]["outcomes"], client.read("/schedules/reconcile?month=2026-04")["month"]
    app.close()

    assert ["dead", "dead", "dead", "succeeded", "succeeded"] == found["words"]
    assert (0.6, 3, 3, 5) == (found["failure_rate"], found["deaths_in_row"], found["died"], found["ended"])
    assert ("dead", 2, "'ledger_id'") == tuple(data["latest"][0][each] for each in ("outcome", "attempts", "error"))
    assert ["succeeded", "retried", "dead", "dead", "dead", "planned"] == [
        mark["outcome"] for day in data["month"]["days"] if day["in_month"] for mark in day["marks"]
    ][:6]
    assert ("2026-04-01", "2026-03", "2026-05") == (march["month"], march["before"], march["after"])
    assert ["planned"] * 30 == [mark["outcome"] for day in march["days"] if day["in_month"] for mark in day["marks"]]
    assert "clocks go forward: 23 hours" in [day["change"] for day in data["month"]["days"]]
    assert "Its last 3 jobs died" in html
    assert f"/jobs?q={quote(data['dead_q'])}" in html
    assert (3, "reconcile: its last 3 jobs died" in listed) == (line["outcomes"]["deaths_in_row"], True)


def test_days_with_many_occurrences_have_counts(app: redrive.App, client: Operator):
    """A day with more than four occurrences has a number for each outcome."""
    today = next(day for day in client.read("/schedules/hourly")["month"]["days"] if day["counts"])

    assert (["succeeded"], []) == (list(today["counts"]), today["marks"])


def test_a_pause_shows_what_it_skips(app: redrive.App, client: Operator):
    """Paused crons start nothing, and their page counts the occurrences that are left out."""
    assert (200, "cron hourly is paused") == client.act("/schedules/hourly", action="pause", state="active")
    drain(app, within="5h")
    data = client.read("/schedules/hourly")

    assert {"value": 5, "capped": False} == data["skips"]
    assert None is data["line"]["due_at"]
    assert "The pause has skipped 5 occurrences" in client.get("/schedules/hourly").text
    assert "redrive schedules resume shop:app hourly" == data["remedy"]
    assert f"<code>{data['remedy']}</code>" in client.get("/schedules/hourly").text
    assert (200, "cron hourly is resumed") == client.act("/schedules/hourly", action="resume", state="paused")
    assert None is client.read("/schedules/hourly")["remedy"]
    assert ["local via web", "local via web"] == [each.actor for each in app.database.audit()[:2]]


def test_a_runaway_schedule_is_stopped_with_its_jobs(app: redrive.App, client: Operator):
    """It is paused, and an operation cancels its jobs that have not ended; its page names who did it."""
    for _ in range(120):  # more than a filter returns by default
        app.schedules.trigger("hourly")
    answer = client.post("/api/v1/schedules/hourly", json={"action": "stop", "why": "too many"}).json()
    app.operations.finish(int(answer["operation"]))
    data, html = client.read("/schedules/hourly"), client.get("/schedules/hourly").text
    jobs = client.read(f"/jobs?q={quote('schedule:hourly state:cancelled')}&limit=200")["items"]

    assert {"value": 120, "capped": False} == answer["changes"]
    assert f"cron hourly is paused, and operation {answer['operation']} cancels its jobs: 120" == answer["note"]
    assert 120 == len(jobs)
    assert "local via web" == data["line"]["paused_by"]
    assert ["start_cancel", "pause", "trigger"] == [each["action"] for each in data["acts"]][:3]
    assert "local via web: nothing is started" in html
    assert "/audit?about=schedule%3Ahourly" in html
    assert (200, "cron hourly is paused, and has no job to cancel") == client.act("/schedules/hourly", action="stop")


def test_many_jobs_of_a_schedule_are_stopped_with_their_number(
    app: redrive.App, client: Operator, monkeypatch: pytest.MonkeyPatch
):
    """As in a preview; nothing is paused before it is given."""
    monkeypatch.setattr(operations, "MANY", 0)
    client.act("/schedules/hourly", action="trigger")
    refused = client.act("/schedules/hourly", action="stop")

    assert (409, "this changes 1 jobs: look at the preview, and give confirm=1") == refused
    assert None is client.read("/schedules/hourly")["line"]["paused_at"]
    assert 200 == client.act("/schedules/hourly", action="stop", confirm=1)[0]


def test_a_cron_is_started_now(app: redrive.App, client: Operator):
    """Triggers make a job and an occurrence."""
    status, note = client.act("/schedules/hourly", action="trigger", state="active")
    latest = client.read("/schedules/hourly")["past"][0]

    assert (200, f"cron hourly was started as job {latest['job']}") == (status, note)


def test_a_refresh_shows_items_in_trouble_first(client: Operator):
    """Items that fail or were given up stand in a list of their own, with the reason."""
    data = client.read("/schedules/table")

    assert [("b/broken", "given up", 3), ("c/new", "failing", 1)] == [
        (each["key"], each["standing"], each["attempts"]) for each in data["in_trouble"]
    ]
    assert ["a/fine", "b/broken", "c/new"] == [each["key"] for each in data["items"]]
    assert data["in_trouble"][0]["reason"]
    assert "Refresh every 2 hours" == data["policy"][0]
    assert "/schedules/table/item?key=b/broken" in client.get("/schedules/table").text


def test_an_item_shows_when_it_is_given_up(app: redrive.App, client: Operator):
    """Failing items have the attempts to come, planned and retried, when it is given up, and the text for its owner."""
    data = client.read("/schedules/table/item?key=c/new")

    assert ("failing", 1) == (data["standing"], data["failed"])
    assert [(2, False), (3, False)] == [(each["number"], each["planned"]) for each in data["ahead"]]
    assert data["ahead"][-1]["ends_at"] == data["gives_up_at"]
    assert data["customer"]
    assert ["email customer it is off"] == data["announced"]
    assert "redrive-refresh" in data["picture"]

    drain(app, within="1h")
    after = client.read("/schedules/table/item?key=c/new")
    assert ("given up", None, data["customer"]) == (after["standing"], after["gives_up_at"], after["customer"])


@pytest.mark.parametrize(
    ("ending", "hours", "text"),
    [
        ("give up after 90 minutes without success", 1.5, "No successful refresh for too long"),
        ("give up after 400 days without success", 9600, "No successful refresh for too long"),
        ("on the third failure, give up", 13 / 60, "Cannot refresh after 3 attempt(s)"),
    ],
)
def test_items_are_given_up_for_two_reasons(app: redrive.App, client: Operator, ending: str, hours: float, text: str):
    """Retries that are used up, and failing for too long, both have an instant and a text."""
    policy = f"Refresh every hour; allow 1 minute; retry after 5 minutes, then after 5 minutes; {ending}"
    app.tasks["table"].keeping(policy=policy).track("d/own", "fine")
    drain(app, within="1m")
    data = client.read("/schedules/table/item?key=d/own")
    first, end = (datetime.fromisoformat(each) for each in (data["ahead"][0]["starts_at"], data["gives_up_at"]))

    assert (timedelta(hours=hours), text) == (end - first, data["customer"])


def test_an_item_that_never_gives_up_has_no_end(app: redrive.App, client: Operator):
    """Fresh items with a policy that waits for the next planned refresh are not given up."""
    policy = "Refresh every hour; retry after 5 minutes; on the second failure, wait until the next scheduled refresh"
    app.tasks["table"].keeping(policy=policy).track("d/own", "fine")
    drain(app, within="1m")
    data = client.read("/schedules/table/item?key=d/own")

    assert ("fresh", True, None, 20) == (data["standing"], data["own"], data["gives_up_at"], len(data["ahead"]))
    assert {True, False} == {each["planned"] for each in data["ahead"]}
    assert 5 == len(data["planned"])


def test_arguments_of_items_are_redacted(client: Operator):
    """Secret values are shown in no list and on no page."""
    paths = ("/schedules/table", "/schedules/table/item?key=b/broken")
    texts = [client.get(prefix + path).text for prefix in ("", "/api/v1") for path in paths]

    assert not any("canary-1" in text for text in texts)
    assert "[redacted]" in texts[1]


def test_an_item_is_updated_and_paused(client: Operator):
    """Given up items are enabled again by an update; those in another state than on the page stay as they are."""
    path = "/schedules/table/item"
    given = {"key": "b/broken", "state": "given up"}

    assert (409, "table/b/broken is given up: 'trigger' is not possible, but update, pause") == client.act(
        path, action="trigger", **given
    )
    assert (200, "table/b/broken is enabled, and starts now") == client.act(path, action="update", **given)
    status, detail = client.act(path, action="update", **given)
    assert (409, True) == (status, "not given up" in detail)
    assert (200, "table/a/fine is paused") == client.act(path, key="a/fine", action="pause", state="fresh")
    assert client.read(f"{path}?key=a/fine")["paused"]
    assert (200, "table/a/fine is resumed") == client.act(path, key="a/fine", action="resume")
    assert (200, "table/a/fine is started now") == client.act(path, key="a/fine", action="trigger")


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/schedules/none", {"action": "pause"}, 404),
        ("/schedules/hourly", {"action": "pause", "state": "paused"}, 409),
        ("/schedules/hourly", {"action": "resume"}, 409),
        ("/schedules/hourly", {"action": "explode"}, 400),
        ("/schedules/table", {"action": "trigger"}, 400),
        ("/schedules/table/item", {"action": "pause"}, 400),
        ("/schedules/table/item", {"action": "pause", "key": "none"}, 404),
        ("/schedules/table/item", {"action": "explode", "key": "a/fine"}, 400),
    ],
)
def test_wrong_actions_are_refused(client: Operator, path: str, form: dict[str, str], status: int):
    """Requests for what does not exist, does not fit or has changed are refused with a sentence."""
    found, detail = client.act(path, **form)

    assert (status, True) == (found, len(detail) > 10)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/schedules/none", 404),
        ("/schedules/hourly?before=yesterday", 400),
        ("/schedules/hourly?month=2026-13", 400),
        ("/schedules/hourly?month=9999-12", 400),
        ("/schedules/hourly?month=2020-01", 200),
        ("/schedules/hourly?before=2026-03-01T06:00Z", 200),
        ("/schedules/hourly?before=0001-01-01T00:00%2B14:00", 400),
        ("/schedules/table/item?key=", 400),
        ("/schedules/table/item?key=none", 404),
        ("/schedules/hourly/item?key=a", 404),
        ("/schedules?after=zzz", 200),
    ],
)
def test_wrong_addresses_are_no_server_errors(client: Operator, path: str, status: int):
    """Missing pages are 404, and wrong values 400."""
    assert status == client.get(path).status_code
