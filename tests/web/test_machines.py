"""The pages of machines: states with numbers, instances, one instance with its transition, and actions on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import redrive
from redrive.operate import instance as page
from redrive.operate import machines as pages
from redrive.stores.operations.machines import manage
from redrive.testing import VirtualClock, drain
from tests.web.client import Operator


@dataclass
class Created:
    """The first event."""

    amount: int = 0


@dataclass
class Paid:
    """The event of a payment."""

    amount: int = 0


@dataclass
class Expired:
    """The event of a timeout."""


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a machine: `a/1` is created, `b` is paid, `c` has failed, and `d` waits for its retry."""
    app = redrive.App("memory://", clock=VirtualClock(datetime(2026, 3, 28, 12, tzinfo=UTC)))
    payment = app.machine("payment", data=dict)

    @payment.start
    def created(event: Created, ctx: redrive.Context) -> None:
        """Take the amount."""
        ctx.set_data({"amount": event.amount})

    @payment.state(after=[created], timeout=("3 days", Expired()), retry="1 1h")
    def paid(event: Paid) -> None:
        """Fail for some."""
        if event.amount < 0:
            raise ValueError("negative amount")

    @payment.state(after=[paid])
    def expired(event: Expired) -> None:
        """End it."""

    app.open()
    for key, amount in {"a/1": None, "b": 5, "c": -1, "d": -2}.items():
        if key == "d":
            drain(app, within="2h")
        payment.send(key, Created(7))
        drain(app, within=0)
        if amount is not None:
            payment.send(key, Paid(amount), key=f"webhook{amount}")
            drain(app, within=0)
    yield app
    app.close()


@pytest.fixture
def client(app: redrive.App) -> Operator:
    """Return a client that may operate."""
    return Operator(app)


def _states(machine: Any) -> list[tuple[Any, ...]]:
    return [
        (each["name"], each["instances"]["value"], each["failed"]["value"], each["final"]) for each in machine["states"]
    ]


def test_machines_show_the_number_of_instances_in_each_state(client: Operator):
    """States are in the order of the code, with failed instances, and link to them."""
    (machine,) = client.read("/machines")["items"]
    html = client.get("/machines").text

    assert [("created", 3, 1, False), ("paid", 1, 0, False), ("expired", 0, 0, True)] == _states(machine)
    assert 'href="/machines/payment?status=failed&amp;state=created"' in html


def test_large_numbers_are_capped(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """States count a limited number of instances, and show that there are more, in its diagram too."""
    for module in (manage, pages):
        monkeypatch.setattr(module, "EXACT", 2)
    html = client.get("/machines/payment").text

    assert ">2+</a>" in html
    assert ">2+ instances, 1 failed</text>" in html


def test_a_machine_is_drawn(client: Operator):
    """The diagram has the states with their numbers, the transitions as a sentence, and no styles of its own."""
    html = client.get("/machines/payment").text
    data = client.read("/machines/payment")

    assert (
        'aria-label="start to created on Created; created to paid on Paid; paid to expired on Expired after 3d' in html
    )
    assert "<style" not in html
    assert ">3 instances, 1 failed</text>" in html
    assert '<a href="/machines/payment?state=created&amp;status=failed#instances">' in html
    assert {"source": None, "target": "created", "event": "Created"} == data["transitions"][0]


def test_instances_are_filtered_and_paged_by_key(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """Each instance that matches is on one page; a filter that few match reads a limited number for a page."""
    monkeypatch.setattr(pages, "SHOWN", 2)
    seen: list[str] = []
    path = "/machines/payment?state=created"
    while path:
        data = client.read(path)
        seen += [each["key"] for each in data["instances"]]
        path = f"/machines/payment?state=created&after={data['after']}" if data["after"] else ""
    monkeypatch.setattr(pages, "BUDGET", 2)
    rare = client.read("/machines/payment?state=expired")
    failed = client.read("/machines/payment?status=failed")

    assert ["a/1", "c", "d"] == seen
    assert ("b", 2) == (rare["after"], rare["searched"])
    assert "0 found among 2 instances" in client.get("/machines/payment?state=expired").text
    assert [("c", "negative amount")] == [(each["key"], each["error"]) for each in failed["instances"]]


def test_an_instance_shows_what_it_waits_for_and_its_history(client: Operator):
    """Idle instances name the events that they take, their timeout, their data and their moves."""
    data = client.read("/machines/payment/b")

    assert ([["Expired", "expired"]], "Expired", {"amount": 7}) == (
        data["waits_for"],
        data["timeout_event"],
        data["data"],
    )
    assert [("Paid", "webhook5", "moved", "created", "paid"), ("Created", None, "moved", None, "created")] == [
        (each["event"], each["event_key"], each["status"], each["from_state"], each["to_state"])
        for each in data["history"]
    ]
    assert [["Paid", "paid"]] == client.read("/machines/payment/a/1")["waits_for"]


def test_an_instance_shows_why_its_transition_does_not_run(client: Operator):
    """Transitions that wait for their retry, or have failed, show their job, their last error and what may be done."""
    waiting, failed = (client.read(f"/machines/payment/{key}") for key in "dc")

    assert ("retrying", "dead") == (waiting["transition"]["standing"], failed["transition"]["standing"])
    assert ["negative amount"] * 2 == [waiting["last_error"], failed["last_error"]]
    assert (["retry"], ["retry", "skip", "reset"]) == (waiting["actions"], failed["actions"])
    job = waiting["instance"]["job_id"]
    link = '<a href="/machines/payment/d">transition of d of machine payment</a>'
    assert link in client.get(f"/jobs/{job}").text


def test_histories_are_paged(client: Operator, monkeypatch: pytest.MonkeyPatch):
    """Each event of an instance is on one page."""
    monkeypatch.setattr(page, "SHOWN", 1)
    first = client.read("/machines/payment/b")
    second = client.read(f"/machines/payment/b?before={first['before']}")

    assert ["Paid", "Created"] == [each["event"] for data in (first, second) for each in data["history"]]
    assert second["before"] is None


def test_a_failed_transition_is_retried_or_skipped(app: redrive.App, client: Operator):
    """Retries run the transition once more, and skips drop its event; both are in the audit log."""
    path = "/machines/payment/c"
    retried = client.act(path, action="retry", status="failed")
    again = client.act(path, action="skip")
    drain(app, within="2h")
    skipped = client.act(path, action="skip", status="failed")

    assert (200, "payment/c: its transition is due now") == retried
    assert 409 == again[0]
    assert (200, "payment/c: its event is dropped") == skipped
    assert "running" == app.machines.machine("payment").record("c").status
    assert ["skip", "retry"] == [each.action for each in app.database.audit()[:2]]


def test_an_instance_is_reset(app: redrive.App, client: Operator):
    """Resets put an instance into a state of the code."""
    path = "/machines/payment/b"
    assert (200, "payment/b: it is in created now") == client.act(path, action="reset", to="created", state="paid")
    assert "created" == app.machines.machine("payment").record("b").state

    status, detail = client.act(path, action="reset", to="nowhere")
    assert 400 <= status < 500
    assert "nowhere" in detail


def test_a_stale_page_changes_nothing(app: redrive.App, client: Operator):
    """Forms carry the state and the transition that the page showed."""
    path = "/machines/payment/b"
    assert (409, "b has changed: it has state paid now; look at it again") == client.act(
        path, action="reset", to="created", state="created"
    )
    assert (409, "b has changed: it has job none now; look at it again") == client.act(path, action="retry", job="77")
    assert "paid" == app.machines.machine("payment").record("b").state


def test_machines_of_other_code_are_shown(app: redrive.App):
    """Machines that only the database has are shown without a diagram, and their instances cannot be reset."""
    app.machines.declared.clear()
    client = Operator(app)
    data = client.read("/machines/payment")

    assert (None, False) == (data["drawing"], data["machine"]["declared"])
    assert [("created", 3, 1, False), ("paid", 1, 0, False)] == _states(data["machine"])
    assert "Only the database has it" in client.get("/machines/payment").text
    assert [] == client.read("/machines/payment/b")["actions"]
    assert "only in the database" in client.get("/machines").text


def test_instances_in_unknown_states_are_named(app: redrive.App, client: Operator):
    """States that only the database has are marked, with the command that moves their instances, as in the doctor."""
    app.machines.machine("payment").reset("b", "expired")
    payment = app.machines.declared["payment"]
    del payment.definition.states["expired"], payment.tasks["expired"]
    data = client.read("/machines/payment")

    assert [("created", True), ("paid", True), ("expired", False)] == [
        (each["name"], each["known"]) for each in data["machine"]["states"]
    ]
    assert data["stranded"][0].endswith("redrive machines migrate shop:app payment expired=STATE")
    assert "stranded: the code does not have it" in client.get("/machines").text
    findings = [each["text"] for each in client.read("/health")["findings"] if each["check"] == "machines"]
    assert findings == [each.text for each in app.database.diagnose() if each.check == "machines"]
    assert "machine 'payment': 1 instance is in the state 'expired', which the code does not have" in findings


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/machines/none", 404),
        ("/machines/payment/none", 404),
        ("/machines/payment?status=odd", 400),
        ("/machines/payment/b?before=odd", 400),
    ],
)
def test_wrong_addresses_are_refused_with_a_sentence(client: Operator, path: str, status: int):
    """Each wrong input has a status and a sentence."""
    response = client.get(f"/api/v1{path}")

    assert status == response.status_code
    assert len(response.json()["detail"]) > 10
