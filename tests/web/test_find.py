"""Search for what a business knows, in the API, on the page, and in the list of jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

import redrive
from redrive.operate.exchange import Payloads
from redrive.stores.operations import admin, search
from redrive.testing import VirtualClock, drain
from redrive.web import NoAuth, create_app
from tests.web.client import Client, Operator


@dataclasses.dataclass
class Created:
    """The first event of a payment."""

    amount: int


@pytest.fixture
def shop() -> Iterator[redrive.App]:
    """Yield an app in which one invoice is known in each way."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(search=["invoice"], retry="0")
    def pay(invoice: str, note: str = "", password: str = "") -> None:
        raise OSError(invoice)

    @app.workflow(search=["invoice"])
    async def checkout(flow: redrive.Flow, invoice: str) -> None:
        await flow.wait_for("paid", str)

    @app.refresh("Refresh every 2 hours; retry after 1 minute")
    def prices(address: str) -> None:
        """Do nothing."""

    machine = app.machine("payment")

    @machine.start
    def created(event: Created) -> None:
        """Do nothing."""

    topic = app.topic("orders", str)

    @topic.subscribe("mail")
    def mail(event: str) -> None:
        """Do nothing."""

    pay.enqueue("inv-443")
    pay.enqueue("inv-444", note="inv-443")
    checkout.start("inv-444", id="inv-443")
    prices.track("inv-443", "https://example.com")
    machine.send("inv-443", Created(1))
    machine.send("card-9", Created(1), key="inv-443")
    topic.publish("paid", key="inv-443")
    drain(app, within="1s")
    yield app
    app.close()


def found(operator: Operator, q: str, **more: object) -> Any:
    """Return the answer to a search."""
    return operator.read(f"/find?{urlencode({'q': q, **more})}")


def test_a_value_is_found_wherever_it_is_known(shop: redrive.App):
    """Jobs by tag and argument, and runs, instances, items and events by id or key, each with its page."""
    operator = Operator(shop)
    answer = found(operator, "inv-443")

    assert [
        ("run", "checkout", "inv-443", "/runs/checkout/inv-443"),
        ("instance", "payment", "inv-443", "/machines/payment/inv-443"),
        ("item", "prices", "inv-443", "/schedules/prices/item?key=inv-443"),
        ("event", "orders", "1", "/topics"),
        ("move", "payment", "card-9", "/machines/payment/card-9"),
    ] == [(each["kind"], each["name"], each["part"], each["path"]) for each in answer["hits"]]
    assert ["checkout", "pay", "pay"] == [each["task"] for each in answer["jobs"]]
    assert [] == answer["unread"]
    for each in answer["hits"]:
        assert 200 == operator.get(each["path"]).status_code
        assert each["path"].replace("&", "&amp;") in operator.get("/find?q=inv-443").text


def test_a_filter_finds_jobs_alone(shop: redrive.App):
    """With conditions the search is that of the list of jobs; with a value, too, among what has it."""
    operator = Operator(shop)

    assert ["1"] == [each["id"] for each in found(operator, "args:inv-443 state:dead -tag:inv-444")["jobs"]]
    assert [] == found(operator, "state:dead")["hits"]
    assert ["2", "1"] == [each["id"] for each in found(operator, "inv-443 state:dead")["jobs"]]
    assert {"q": "", "hits": [], "jobs": []}.items() <= found(operator, "").items()


def test_a_number_is_an_id_or_a_value(shop: redrive.App):
    """The job with the id stands among those that have the number as a value."""
    number = shop.tasks["pay"].enqueue("2").id

    assert [str(number), "2"] == [each["id"] for each in found(Operator(shop), "2")["jobs"]]


def test_a_filter_leads_to_the_list_of_jobs(shop: redrive.App):
    """There all that match can be changed; the API answers at once."""
    operator = Operator(shop)
    answer = operator.get("/find?q=state:dead+task:pay")

    assert (303, "/jobs?q=state%3Adead+task%3Apay") == (answer.status_code, answer.headers["location"])
    assert 2 == len(found(operator, "state:dead task:pay")["jobs"])


def test_what_was_not_searched_is_said(shop: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """Older jobs and events, with the way to go on; the next page has no other matches again."""
    monkeypatch.setattr(admin, "BUDGET", 1)
    monkeypatch.setattr(search, "BUDGET", 0)
    operator = Operator(shop)
    first = found(operator, "inv-443")
    text = operator.get("/find?q=inv-443").text

    assert 2 == len(first["unread"])
    assert f"older than {first['searched_to']} only tags, held keys and ids of runs were searched" in text
    assert "keys of events older than the newest 0 were not searched" in text
    assert f"before={first['searched_to']}" in text
    assert [] == found(operator, "inv-443", before=first["searched_to"])["hits"]


def test_a_wrong_filter_is_shown_with_its_place(shop: redrive.App):
    """No part of it is ignored, and the nearest word is named."""
    response = Operator(shop).get("/find?q=stat:dead")

    assert 400 == response.status_code
    assert "state: is one" in response.text
    assert 400 == Operator(shop).get("/api/v1/find?q=stat:dead").status_code
    assert "negation" not in response.text


def test_an_empty_search_explains_the_words(shop: redrive.App):
    """Each word stands there with its meaning."""
    text = Operator(shop).get("/find").text

    assert "<code>args:</code>" in text
    assert "<code>took:</code>" in text


def test_the_list_of_jobs_takes_a_value(shop: redrive.App):
    """It shows the jobs that have it, and no action on all of them, because a value may mean several things."""
    answer = Operator(shop).read("/jobs?q=inv-443")

    assert (["3", "2", "1"], []) == ([each["id"] for each in answer["items"]], answer["actions"])
    assert ["redrive"] == Operator(shop).read("/jobs?q=args:inv-443+state:dead")["actions"]


@pytest.mark.parametrize("action", ["redrive", "cancel"])
def test_an_operation_on_a_value_is_refused(shop: redrive.App, action: str):
    """It has to say what is meant."""
    response = Operator(shop).get(f"/api/v1/operations/preview?action={action}&q=inv-443")

    assert (400, True) == (response.status_code, "write args:inv-443" in response.json()["detail"])


def test_a_preview_freezes_a_span_of_time(shop: redrive.App):
    """The filter of its start is an instant, so that the operation means the jobs that were counted."""
    preview = Operator(shop).read("/operations/preview?action=redrive&q=state:dead+since:2h")

    assert 2 == preview["changes"]["value"]
    assert preview["q"].startswith("state:dead since:20")


@pytest.fixture
def reader(shop: redrive.App) -> Callable[[Payloads], Client]:
    """Return a client of a dashboard that shows so much of arguments."""
    return lambda shown: Client(create_app(shop, auth=NoAuth(), payloads=shown), {"Origin": "http://localhost"})


def test_secrets_are_not_found(shop: redrive.App, reader: Callable[[Payloads], Client]):
    """Neither a secret value, nor any value where arguments are hidden, but by the tags of declared fields."""
    number = shop.tasks["pay"].enqueue("inv-9", note="note-9", password="hunter7secret").id
    answers = {
        shown: [
            [each["id"] for each in reader(shown).get(f"/api/v1/find?q={word}").json()["jobs"]]
            for word in ("hunter7secret", "note-9", "inv-9")
        ]
        for shown in Payloads
    }

    assert {
        Payloads.SHOW: [[], [str(number)], [str(number)]],
        Payloads.REDACTED: [[], [str(number)], [str(number)]],
        Payloads.HIDDEN: [[], [], [str(number)]],
    } == answers
    assert 400 == reader(Payloads.HIDDEN).get("/api/v1/jobs?q=args:note-9").status_code


def test_a_site_that_hides_arguments_shows_no_tag_of_them(shop: redrive.App, reader: Callable[[Payloads], Client]):
    """Tags that are values of arguments are left out there; the others stay."""
    number = shop.tasks["pay"].options(tags=["eu"]).enqueue("i9").id
    shown = {kind: reader(kind).get(f"/api/v1/jobs/{number}").json()["tags"] for kind in Payloads}

    assert {Payloads.SHOW: ["eu", "i9"], Payloads.REDACTED: ["eu", "i9"], Payloads.HIDDEN: ["eu"]} == shown
