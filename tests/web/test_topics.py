"""The pages of topics: subscriptions with their lag, one subscription, and actions on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

import redrive
from redrive.stores.query import Operation, Statements
from redrive.testing import VirtualClock, drain
from tests.web.client import Operator

PLACE = "/topics/orders/index"


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a topic of five events: the second one fails and holds a strict subscription."""
    app = redrive.App("memory://", clock=VirtualClock())
    orders = app.topic("orders", int)
    app.topic("silent", int)

    @orders.subscribe("index", order="strict", retry="1 1h", dead="hold")
    def index(order: int) -> None:
        """Fail for an event."""
        if order == 2:
            raise ConnectionError("index is down")

    @orders.subscribe("count", order="none", retry="0")
    def count(order: int) -> None:
        """Fail for an event, for good."""
        if order == 3:
            raise ValueError("cannot count")

    app.open()
    orders.publish_many([1, 2, 3, 4, 5])
    drain(app, within=0)
    yield app
    app.close()


@pytest.fixture
def client(app: redrive.App) -> Operator:
    """Return a client that may operate."""
    return Operator(app)


def test_the_list_has_a_fixed_number_of_statements(app: redrive.App, client: Operator, monkeypatch: pytest.MonkeyPatch):
    """Lists of topics and of operations take at most eight statements for any number of rows."""
    asked: list[str] = []

    def counted(steps: Statements[Any]) -> Statements[Any]:
        """Note the statements of an operation."""
        answer = None
        while True:
            try:
                query = steps.send(answer)
            except StopIteration as end:
                return end.value
            asked.append(getattr(query, "name", "batch"))
            answer = yield query

    plain = app.store.arun

    async def arun(operation: Operation[Any]) -> Any:
        """Run an operation and note its statements."""
        return await plain(structs.replace(operation, steps=counted(operation.steps)))

    client.get("/livez")
    client.get("/audit")
    monkeypatch.setattr(app.store, "arun", arun)
    for path in ("/topics", "/operations"):
        asked.clear()
        client.read(path)
        assert 0 < len(asked) <= 8, asked


def test_subscriptions_show_their_lag_and_what_holds_them(client: Operator):
    """Lists have the lag in events and seconds, failed and dead events, and the job that holds others."""
    data = client.read("/topics")
    count, index = data["subscriptions"]
    (held,) = index["held_by"]
    html = client.get("/topics").text

    assert ("index", "strict", 3, 1, 0) == (
        index["name"],
        index["order"],
        index["lag"]["value"],
        index["failed"]["value"],
        index["dead"]["value"],
    )
    assert (0, 0, 1, []) == (count["lag"]["value"], count["failed"]["value"], count["dead"]["value"], count["held_by"])
    assert index["oldest_seconds"] >= 0
    assert index["standing"].startswith(f"held by event {held['event_id']} (job {held['job_id']})")
    assert f'<a href="/jobs/{held["job_id"]}">job {held["job_id"]}</a>' in html
    assert [("orders", 5)] == [(each["name"], each["events"]["value"]) for each in data["topics"]]


def test_a_subscription_shows_the_events_that_hold_others(client: Operator):
    """The page has the cursor of each shard with its feeder, and failed events with their errors."""
    data = client.read(PLACE)
    (held,) = data["subscription"]["held_by"]
    job = client.get(f"/jobs/{held['job_id']}").text
    feeder = client.get(f"/jobs/{data['shards'][0]['feeder']}").text

    assert ("ready", "index is down", 1, "strict") == (held["state"], held["error"], held["attempt"], held["line"])
    assert ["cannot count"] == [each["error"] for each in client.read("/topics/orders/count")["dead"]]
    assert 1 == len(data["shards"])
    assert ["pause", "move", "skip"] == data["actions"]
    assert f'<a href="{PLACE}">' in job
    assert f'<a href="{PLACE}">' in feeder


def test_a_subscription_is_paused_and_resumed(app: redrive.App, client: Operator):
    """Stale pages change nothing; both actions are in the audit log."""
    assert (200, "orders.index: paused") == client.act(PLACE, action="pause", paused="no")
    assert (409, "orders.index was moved, paused or resumed meanwhile: look at it again") == client.act(
        PLACE, action="pause", paused="no"
    )
    assert "Resume" in client.get(PLACE).text
    resume, clear = client.read(PLACE)["remedies"]
    assert "redrive topics resume shop:app orders index" == resume
    assert re.fullmatch(r"redrive jobs retry shop:app \d+, or redrive topics skip shop:app orders index \d+", clear)
    assert f"<code>{resume}</code>" in client.get(PLACE).text
    assert (200, "orders.index: goes on") == client.act(PLACE, action="resume", paused="yes")
    assert ["resume", "pause"] == [each.action for each in app.database.audit()[:2]]


@pytest.mark.parametrize(("to", "skipped", "repeated"), [("beginning", 0, 2), ("end", 3, 0), ("2", 0, 1), ("4", 1, 0)])
def test_the_effect_of_a_move_is_shown_before(client: Operator, to: str, skipped: int, repeated: int):
    """Previews count the unread events that a move would skip, and those that it would deliver again."""
    data = client.read(f"{PLACE}/move?to={to}")
    html = client.get(f"{PLACE}/move?to={to}").text

    assert {
        "topic": "orders",
        "name": "index",
        "to": to,
        "skipped": {"value": skipped, "capped": False},
        "repeated": {"value": repeated, "capped": False},
        "cancelled": {"value": 1, "capped": False},
        "epoch": 0,
    } == data
    assert f"would skip {skipped} unread events, deliver {repeated} events again, and cancel 1 pending" in html


def test_a_subscription_is_moved(app: redrive.App, client: Operator):
    """Moves take the cursor to another place; pages that showed the cursor before change nothing."""
    assert (200, "orders.index: moved to end; 1 pending deliveries are cancelled") == client.act(
        PLACE, action="move", to="end", epoch="0"
    )
    assert 409 == client.act(PLACE, action="move", to="end", epoch="0")[0]
    assert 0 == app.topics.subscription("orders", "index").status().lag.events


def test_an_event_that_holds_others_is_skipped(app: redrive.App, client: Operator):
    """The event is dead, and those behind it follow."""
    (held,) = client.read(PLACE)["subscription"]["held_by"]
    status, note = client.act(PLACE, action="skip", event=held["event_id"])
    drain(app, within=0)

    assert (200, f"orders.index: event {held['event_id']} is dead, and the events behind it follow") == (status, note)
    assert 0 == app.topics.subscription("orders", "index").status().lag.events


def test_dead_events_are_redriven(app: redrive.App, client: Operator):
    """Dead events start again, oldest first, at a rate."""
    place = "/topics/orders/count"
    assert (200, "orders.count: 1 dead events redriven") == client.act(place, action="redrive", rate="10/s")
    assert (409, "orders.count: 'redrive' is not possible, but pause, move") == client.act(place, action="redrive")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/orders/none", 404),
        ("/topics/none/index", 404),
        ("/topics/orders/none/move?to=end", 404),
        (f"{PLACE}/move", 400),
        (f"{PLACE}/move?to=yesterday", 400),
        (f"{PLACE}/move?to=2026-01-01", 400),
        (f"{PLACE}/move?to=0", 400),
        (f"{PLACE}/move?to={'9' * 40}", 400),
    ],
)
def test_wrong_addresses_are_refused_with_a_sentence(client: Operator, path: str, status: int):
    """Each wrong input has a status and a sentence."""
    response = client.get(f"/api/v1{path}")

    assert status == response.status_code
    assert len(response.json()["detail"]) > 10


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"action": "explode"}, 400),
        ({"action": "move", "to": "yesterday"}, 400),
        ({"action": "move"}, 400),
        ({"action": "skip", "event": "x"}, 400),
        ({"action": "skip", "event": "77"}, 409),
    ],
)
def test_wrong_forms_change_nothing(app: redrive.App, client: Operator, form: dict[str, str], status: int):
    """Each wrong action has a status and a sentence, and leaves no line in the audit log."""
    response = client.post(f"/api/v1{PLACE}", json=form)

    assert status == response.status_code
    assert len(response.json()["detail"]) > 10
    assert () == tuple(app.database.audit())


def test_pages_say_where_dead_events_go():
    """The subscription, and the job of a dead event, name the topic to which it is published."""
    app = redrive.App("memory://", clock=VirtualClock())
    orders = app.topic("orders", int)
    app.topic("failed", redrive.DeadLetter[int])

    @orders.subscribe("index", retry="0", dead="topic:failed")
    def index(order: int) -> None:
        """Fail for good."""
        raise ValueError("cannot index")

    app.open()
    orders.publish(7)
    drain(app, within=0)
    client = Operator(app)
    shown = client.get(f"/api/v1{PLACE}").json()
    job = client.get(f"/api/v1/jobs/{shown['dead'][0]['job_id']}").text
    page = client.get(PLACE).text
    app.close()

    assert "topic:failed" == shown["after_dead"]
    assert ", published to the topic failed" in job
    assert "topic:failed</a>" in page
