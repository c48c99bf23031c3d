"""The dashboard of `redrive dev`: the link that logs in once, and the page that only a developer has."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import redrive
from redrive.app.payload import Signature
from redrive.engine.lifecycle import State
from redrive.operate import dev
from redrive.operate.exchange import Dev, Refusal, Site
from redrive.operate.forms import Field, arguments, fields
from redrive.runtime import failpoints
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases, workers
from redrive.testing import VirtualClock
from redrive.web import Account, NoAuth, Role, Users, create_app, hash_token
from redrive.web.asgi import Dashboard
from redrive.web.link import LoginLink
from tests.web.client import Client


class Kind(enum.Enum):
    """How it is paid."""

    CARD = "card"
    CASH = "cash"


@dataclass
class Payment:
    """What is owed."""

    invoice: str
    cents: int
    kind: Kind | None = Kind.CARD
    parts: tuple[Payment, ...] = ()


calls: list[str] = []


def pay(order: int) -> int:
    """Record the call, as a step."""
    calls.append(f"pay {order}")
    return order


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App with a task, a workflow, a cron and a virtual clock."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry="2 1m", name="charge")
    def charge(payment: Payment, note: str = "thanks") -> str:
        """Record the call."""
        calls.append(f"{payment.invoice} {payment.cents} {note}")
        return note

    @app.workflow(name="checkout", steps="2 1m")
    async def checkout(flow: redrive.Flow, order: int) -> int:
        """Do one step."""
        return await flow.step(pay, order)

    @app.cron("0 3 * * *")
    def nightly() -> None:
        """Do nothing."""

    calls.clear()
    app.open()
    yield app
    app.close()
    failpoints.PLANNED.clear()


class Server:
    """A dashboard as `redrive dev` serves it.

    Args:
        app: the app.
        folder: for the link.
        memory: whether the clock can be advanced.
    """

    def __init__(self, app: redrive.App, folder: Path, *, memory: bool = True) -> None:
        self.links: list[str] = []
        self.advanced: list[timedelta] = []
        self.link = LoginLink(folder / "link", "0", self.links.append)
        users = Users({"developer": Account(Role.OPERATE, token=hash_token("key"))})
        site = Site(app, dev=Dev(self.advanced.append if memory else None))
        self.application = Dashboard(site, users, (), link=self.link).application()
        self.developer = Client(self.application, {"authorization": "Bearer key"})

    def post(self, action: str, **form: str) -> tuple[int, str]:
        """Act, and return the status with the place to which the browser is sent, or the reason of the refusal."""
        answer = self.developer.post("/api/v1/dev", json={"action": action, **form})
        return answer.status_code, answer.json().get("note", answer.json().get("detail"))


@pytest.fixture
def server(app: redrive.App, tmp_path: Path) -> Server:
    """Return a dashboard with a clock that can be advanced."""
    return Server(app, tmp_path)


def _work(app: redrive.App) -> None:
    asyncio.run(Worker(app, until_empty=True).run())


# ----------------------------------------------------------------------------------------------------------- the link


def test_links_log_in_once(server: Server):
    """The first use opens a session without a token in the address; a second use fails, and prints another link."""
    server.link.start()
    server.link.start()
    browser, other = Client(server.application), Client(server.application)
    used = browser.get(server.links[0])
    server.link.start()
    again = other.get(server.links[0])

    assert (303, "/") == (used.status_code, used.headers["location"])
    assert 200 == browser.get("/jobs").status_code
    assert (401, 303) == (again.status_code, other.get("/jobs").status_code)
    assert 2 == len(server.links)
    assert 303 == other.get(server.links[1]).status_code


def test_links_are_not_guessed_or_used_by_previews(server: Server):
    """Wrong tokens leave the link valid, and so does a HEAD request."""
    server.link.offer()
    client = Client(server.application)

    assert 401 == client.get("/login/guess").status_code
    assert 401 == client._send("HEAD", server.links[0]).status_code
    assert 303 == client.get(server.links[0]).status_code
    assert 1 == len(server.links)


def test_strangers_are_sent_to_the_terminal(server: Server):
    """The page for the login asks for no password: it prints a link, unless one is valid."""
    answer = Client(server.application).get("/login")

    assert 401 == answer.status_code
    assert "in its terminal" in answer.text
    assert "password" not in answer.text
    assert 1 == len(server.links)


def test_other_dashboards_have_no_developers_page(app: redrive.App):
    """Neither the page nor a link exists in a dashboard that is not of `redrive dev`."""
    client = Client(create_app(app, auth=NoAuth()), {"sec-fetch-site": "same-origin"})

    assert 404 == client.get("/dev").status_code
    assert 404 == client.post("/dev", data={"action": "run"}).status_code
    assert 404 == client.get("/login/token").status_code
    assert "DEV" not in client.get("/").text


# --------------------------------------------------------------------------------------------------------------- forms


def every(
    text: str,
    whole: int,
    kind: Kind,
    payment: Payment,
    zone: ZoneInfo,
    anything: Any,
    flag: bool = True,
    words: list[str] = ["a"],  # noqa: B006 - a default as users write them
    at: datetime | None = None,
    other: dict[str, int] | None = None,
) -> None:
    """Do nothing."""


FIELDS = (
    Field("text", "text", True),
    Field("whole", "number", True),
    Field("kind", "choice", True, "", ('"card"', '"cash"')),
    Field("payment", "json", True, '{\n  "invoice": "",\n  "cents": 0,\n  "kind": "card",\n  "parts": []\n}'),
    Field("zone", "text", True),
    Field("anything", "json", True, "null"),
    Field("flag", "choice", False, "true", ("false", "true")),
    Field("words", "json", False, '[\n  "a"\n]'),
    Field("at", "text", False),
    Field("other", "json", False, "null"),
)


def test_forms_have_a_field_for_each_argument():
    """Kinds, defaults and examples of fields come from the JSON Schema of the task."""
    schema = Signature(every, "every").schema

    assert FIELDS == fields(schema)
    assert "every" == schema["title"]


def test_forms_are_read_as_arguments():
    """Text is taken as it is, the rest is JSON, and an empty field with a default is left out."""
    form = {"arg.text": "", "arg.whole": "7", "arg.kind": '"cash"', "arg.payment": "{}", "arg.zone": "UTC"}
    given = arguments(FIELDS, {**form, "arg.anything": " null ", "arg.flag": "false", "arg.words": ""})

    expected = {"text": "", "whole": 7, "kind": "cash", "payment": {}, "zone": "UTC", "anything": None, "flag": False}
    assert expected == given


@pytest.mark.parametrize(("text", "why"), [("seven", "whole is JSON"), (" ", "whole is required")])
def test_mistakes_in_forms_are_named(text: str, why: str):
    """Fields that cannot be read, or are missing, are refused with their name."""
    with pytest.raises(Refusal, match=why):
        arguments(FIELDS, {"arg.whole": text})


# ------------------------------------------------------------------------------------------------------------- actions


def test_the_page_shows_the_form_of_a_task(server: Server):
    """The developer chooses a task; the form has its arguments, and the header is marked."""
    text = server.developer.get("/dev?task=charge").text
    data = server.developer.get("/api/v1/dev?task=charge").json()

    assert 'class="instance dev"' in text
    assert 'name="arg.payment"' in text
    assert ["charge", "checkout", "nightly"] == data["tasks"]
    assert "arg." not in server.developer.get("/dev?task=nightly").text
    assert 404 == server.developer.get("/dev?task=weekly").status_code


def test_forms_enqueue_jobs(server: Server, app: redrive.App):
    """The job has the arguments of the form, and its delay."""
    done = server.post(
        "enqueue", task="charge", delay="5m", **{"arg.payment": '{"invoice": "i-7", "cents": 5}', "arg.note": ""}
    )
    later = server.developer.get("/api/v1/dev").json()
    ran = server.post("run")
    _work(app)

    assert (200, "job 1 of charge is enqueued") == done
    assert ("2026-01-01T00:05:00Z", 1) == (later["next_at"], later["later"]["value"])
    assert (200, "jobs made due: 1") == ran
    assert ["i-7 5 thanks"] == calls


def test_forms_start_runs(server: Server, app: redrive.App):
    """Workflows are started with the arguments of the form."""
    assert (200, "run run-1 is started") == server.post("enqueue", task="checkout", **{"arg.order": "7"})
    _work(app)
    assert 7 == app.job(1).result()


@pytest.mark.parametrize(
    ("form", "status", "why"),
    [
        ({"action": "enqueue", "task": "weekly"}, 404, "no task 'weekly'"),
        ({"action": "enqueue", "task": "nightly"}, 409, "starts by its schedule"),
        ({"action": "fail", "task": "checkout", "error": "ValueError"}, 400, "name a step"),
        (
            {"action": "enqueue", "task": "charge", "arg.payment": '{"cents": 5}'},
            400,
            "missing required field `invoice`",
        ),
        ({"action": "enqueue", "task": "charge", "arg.payment": "{}", "delay": "soon"}, 400, "soon"),
        ({"action": "fail", "task": "none"}, 404, "no task 'none'"),
        ({"action": "fail", "task": "charge", "error": "os.system"}, 400, "no exception of Python"),
        ({"action": "fail", "task": "charge", "error": "antigravity.Error"}, 400, "no exception of Python"),
        ({"action": "fail", "task": "charge", "error": "ValueError", "attempts": "101"}, 400, "from 0 to 100"),
        ({"action": "jump"}, 409, "nothing is planned"),
        ({"action": "jump", "by": "0s"}, 409, "due now already"),
        ({"action": "sing"}, 400, "is not possible, but enqueue, run, jump, fail"),
    ],
)
def test_wrong_requests_are_refused(server: Server, form: dict[str, str], status: int, why: str):
    """Each mistake is named, and changes nothing."""
    found, detail = server.post(**form)

    assert status == found
    assert why in detail
    assert ([], {}) == (server.advanced, failpoints.PLANNED)


def test_paused_runs_are_not_made_due(server: Server, app: redrive.App):
    """Only jobs that wait for a time are made due."""
    run = app.tasks["checkout"].start(1)
    run.pause()
    app.tasks["charge"].options(delay="1h").enqueue(Payment("i", 1))

    assert (200, "jobs made due: 1") == server.post("run")


def test_jobs_that_have_ended_meanwhile_are_left_out(server: Server, app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """A job that cannot start any more when its turn comes does not keep the others from being made due."""
    charge = app.tasks["charge"].options(delay="1h")
    charge.options(key="k").enqueue(Payment("i", 1))
    charge.enqueue(Payment("i", 2))
    depths = dev.queues.depths

    def late(**given: Any) -> Any:
        """Give the key of the first job to another one, after the jobs were read."""
        monkeypatch.undo()
        app.job(1).cancel()
        charge.options(key="k").enqueue(Payment("i", 3))
        return depths(**given)

    monkeypatch.setattr(dev.queues, "depths", late)

    assert (200, "jobs made due: 1") == server.post("run")


def test_clocks_are_advanced_to_the_next_due_time(server: Server, app: redrive.App):
    """The span leads to the next due time, or is the one that the developer gives."""
    app.tasks["charge"].options(delay="90s").enqueue(Payment("i", 1))

    assert (200, "the clock was advanced by 1m 30s") == server.post("jump")
    assert 200 == server.post("jump", by="2h")[0]
    assert [timedelta(seconds=90), timedelta(hours=2)] == server.advanced


def test_clocks_stand_while_jobs_run(server: Server, app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """A running attempt would time out by the jump, so that it is refused; a feeder goes on with the next worker."""
    app.tasks["charge"].enqueue(Payment("i", 1))
    worker = app.store.run(workers.register("w", concurrency=1, lease_for=timedelta(hours=1), now=app.now()))
    app.store.run(leases.claim(worker, 1, lease_for=timedelta(hours=1), now=app.now()))

    assert (409, "job 1 runs: advance the clock when it has ended") == server.post("jump", by="1h")
    monkeypatch.setattr(app.topics, "fed_by", lambda name: name)
    assert 200 == server.post("jump", by="1h")[0]


def test_clocks_of_other_databases_are_not_advanced(app: redrive.App, tmp_path: Path):
    """Without a throw-away database the page offers no jump, and the action is refused."""
    server = Server(app, tmp_path, memory=False)

    assert 409 == server.post("jump", by="1h")[0]
    assert "--memory" in server.developer.get("/dev").text


def test_attempts_fail_as_planned(server: Server, app: redrive.App):
    """The next attempts fail with the chosen error, and without a call; the one after them is a usual one."""
    job = app.tasks["charge"].enqueue(Payment("i", 1))
    planned = server.post("fail", task="charge", error="builtins.TimeoutError", message="no bank", attempts="2")
    shown = server.developer.get("/api/v1/dev").json()["planned"]
    for _ in range(3):
        _work(app)
        app.clock.advance("10m")

    assert (200, "attempts of charge that will fail with TimeoutError('no bank'): 2") == planned
    assert [{"name": "charge", "error": "TimeoutError('no bank')", "attempts": 2}] == shown
    assert [("failed", "no bank"), ("failed", "no bank"), ("succeeded", None)] == [
        (each.outcome, each.error) for each in job.attempts
    ]
    assert ["i 1 thanks"] == calls
    assert State.SUCCEEDED == job.state


def test_steps_fail_as_planned(server: Server, app: redrive.App):
    """The next try of a step of a workflow fails without a call, and the policy of the steps decides."""
    server.post("fail", task="checkout", step="pay", error="ValueError", message="no bank")
    server.post("enqueue", task="checkout", **{"arg.order": "7"})
    _work(app)
    failed = list(calls)
    app.clock.advance("10m")
    _work(app)

    assert ([], ["pay 7"]) == (failed, calls)
    assert 7 == app.job(1).result()


def test_plans_can_be_removed(server: Server):
    """Zero attempts end a plan; an exception with other arguments than a text can be planned, too."""
    server.post("fail", task="charge", error="builtins.UnicodeDecodeError", message="odd")
    assert "UnicodeDecodeError" in server.developer.get("/api/v1/dev").json()["planned"][0]["error"]

    assert 200 == server.post("fail", task="charge", error="ValueError", attempts="0")[0]
    assert [] == server.developer.get("/api/v1/dev").json()["planned"]
