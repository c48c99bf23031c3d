"""Pages of bulk operations: the preview, the start, the progress, stop and undo."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import redrive
from redrive.engine.lifecycle import State
from redrive.operate import operations
from redrive.runtime.worker import Worker
from redrive.web import Account, Role, Users, create_app, hash_token
from tests.web.client import Client, Operator

OPERATE = {"Authorization": "Bearer ops"}
USERS = Users({"ann": Account(Role.OPERATE, token=hash_token("ops"))})
DEAD = 4


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with four dead jobs of one task, and a waiting one of another."""
    app = redrive.App("memory://")

    @app.task(retry="0")
    def charge(order: int) -> None:
        """Fail."""
        raise RuntimeError(order)

    @app.task
    def mail() -> None:
        """Do nothing."""

    app.open()
    charge.enqueue_many(range(DEAD))
    asyncio.run(Worker(app, until_empty=True).run())
    mail.options(delay="1h").enqueue()
    yield app
    app.close()


@pytest.fixture
def client(app: redrive.App) -> Client:
    """Return a client that may operate."""
    return Client(create_app(app, auth=USERS, hosts=["localhost"]), OPERATE)


def _start(client: Client, **changes: Any) -> tuple[int, str, str]:
    """Start a redrive; return the status, the note or the problem, and the place of the operation."""
    form = {"action": "redrive", "q": "state:dead", **changes}
    response = client.post("/api/v1/operations", json=form)
    answer = response.json()
    return response.status_code, answer.get("note") or answer["detail"], response.headers.get("location", "")


def test_a_preview_shows_what_would_change(client: Client):
    """Previews count the jobs by task and queue, list the first ones, and carry the bound into the form."""
    data = client.get("/api/v1/operations/preview?action=redrive&q=state:dead&rate=2/s").json()
    html = client.get("/operations/preview?action=redrive&q=state:dead&rate=2/s").text

    assert ({"value": DEAD, "capped": False}, None, 2.0) == (data["changes"], data["confirm"], data["takes_seconds"])
    assert ([{"name": "charge", "jobs": DEAD}], "5") == (data["by_task"], data["bound_id"])
    assert "Redrive 4 jobs?" in html
    assert 'name="bound_id" value="5"' in html


def test_an_operation_is_accepted_and_carried_out(app: redrive.App, client: Client):
    """Starts are answered with 202 and the place of the operation, which changes what the preview has shown."""
    seen = client.get("/api/v1/operations/preview?action=redrive&q=task:charge").json()
    answer = _start(client, q="task:charge", bound_id=seen["bound_id"], frozen_at=seen["at"])
    app.operations.finish(1)
    data = client.get(answer[2]).json()

    assert (202, "operation 1 is running", "/api/v1/operations/1") == answer
    assert ("done", DEAD, 0, DEAD) == tuple(data["operation"][name] for name in ("state", "done", "kept", "matched"))
    assert [["1", "2", "3", "4"]] == [each["ids"] for each in data["batches"] if each["ids"]]
    assert {State.READY} == {app.job(number).state for number in range(1, DEAD + 1)}
    assert "4 jobs changed, 0 kept, of 4" in client.get("/operations/1").text
    assert ["ann via web"] == [each["actor"] for each in client.get("/api/v1/operations").json()["items"]]


def test_a_repeated_request_starts_nothing_twice(client: Client):
    """Double clicks lead to the operation that runs."""
    answers = {_start(client, rate="1/1h") for _ in range(2)}

    assert 1 == len(answers)
    assert 1 == len(client.get("/api/v1/operations").json()["items"])


def test_large_numbers_have_to_be_typed(client: Client, monkeypatch: pytest.MonkeyPatch):
    """Operations on many jobs need their number, and one that differs is refused."""
    monkeypatch.setattr(operations, "MANY", 3)

    assert 4 == client.get("/api/v1/operations/preview?action=redrive&q=state:dead").json()["confirm"]
    assert "type 4 to go on" in client.get("/operations/preview?action=redrive&q=state:dead").text
    for typed in (0, 3, -4):
        assert (409, "this changes 4 jobs: look at the preview, and give confirm=4", "") == _start(
            client, confirm=typed
        )
    assert 400 == _start(client, confirm="five")[0]
    assert 202 == _start(client, confirm=4)[0]


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"q": ""}, 400, "no condition"),
        ({"action": "explode"}, 400, "action (redrive, cancel, repolicy)"),
        ({"action": "undo"}, 400, "action (redrive, cancel, repolicy)"),
        ({"rate": "fast"}, 400, "is not a rate"),
        ({"why": "because"}, 400, "why is for a cancel"),
        ({"action": "cancel", "q": "task:mail", "queue": "x"}, 400, "queue is for a redrive"),
        ({"action": "cancel"}, 400, "changes jobs that are ready, running, waiting"),
        ({"q": "state:dead task:mail"}, 409, "no job can be changed"),
        ({"bound_id": "x"}, 400, "expected an id - at `$.bound_id`"),
        ({"frozen_at": "noon"}, 400, "is not an instant with an offset"),
        ({"frozen_at": "2026-01-01"}, 400, "is not an instant with an offset"),
    ],
)
def test_bad_starts_are_refused(client: Client, changes: dict[str, str], status: int, why: str):
    """Each error names what was wrong, and nothing is started."""
    found, detail, _ = _start(client, **changes)

    assert status == found
    assert why in detail
    assert [] == client.get("/api/v1/operations").json()["items"]


def test_an_operation_is_stopped_and_undone(app: redrive.App, client: Client):
    """Stop and undo are forms; a stale page is refused, and so is a second undo."""
    _start(client, rate="1/1h")
    asyncio.run(app.operations.aturn())
    client.post("/operations/1", data={"action": "stop", "state": "running"})
    stale = client.post("/operations/1", data={"action": "stop", "state": "running"})
    client.post("/operations/1", data={"action": "undo", "state": "stopped"})
    app.operations.finish(2)
    again = client.post("/api/v1/operations/1", json={"action": "undo"})

    assert (409, True) == (stale.status_code, "operation 1 is stopped now, not running" in stale.text)
    assert (409, True) == (again.status_code, "operation 2 takes it back already" in again.json()["detail"])
    assert State.CANCELLED is app.job(1).state
    assert "undone by" in client.get("/operations/1").text


def test_jobs_are_cancelled_and_get_policies(app: redrive.App, client: Client):
    """Cancels show their reason, and repolicies take the policies of the app."""
    cancelled = _start(client, action="cancel", q="task:mail", why="wrong text")
    app.operations.finish(1)

    assert (202, "wrong text") == (cancelled[0], app.job(DEAD + 1).record.note)
    assert 409 == _start(client, action="repolicy", q="task:mail")[0]


def test_an_operation_is_listed_among_what_people_did_to_its_queue():
    """What people did to a queue has the operation on its jobs, with a link; it is no act on another queue."""
    app = redrive.App("memory://")

    @app.task
    def send() -> None:
        """Do nothing."""

    app.open()
    send.options(queue="mail").enqueue_many([()] * 2)
    send.options(queue="slow").enqueue()
    operator = Operator(app)
    preview = operator.read("/operations/preview?action=cancel&q=queue:mail")
    status, _ = operator.act(
        "/operations", action="cancel", q="queue:mail", bound_id=preview["bound_id"], frozen_at=preview["at"]
    )
    page = operator.get("/queues/mail").text
    mail, slow = (operator.get(f"/audit?about=queue:{name}").text for name in ("mail", "slow"))
    acts = [operator.read(f"/audit?about=queue:{name}")["items"] for name in ("mail", "slow")]
    app.close()

    assert status < 300
    assert (["start_cancel"], []) == tuple([each["action"] for each in found] for found in acts)
    assert '<a href="/operations/1">start cancel, operation 1</a>' in mail
    assert "/operations/1" not in slow
    assert '<a href="/operations/1">start cancel, operation 1</a>' in page
