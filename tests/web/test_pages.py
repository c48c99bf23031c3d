"""Pages, served to a client: what they show, what they refuse, and what they change."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import html
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import redrive
from redrive import Filter
from redrive.clock import SystemClock
from redrive.engine.counters import EPOCH, MINUTE, MinuteSums, TallyRows, floor
from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError, StoreUnreachable
from redrive.operate.table import ROWS
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, workers
from redrive.web import Account, NoAuth, Payloads, Role, User, Users, create_app, hash_password, hash_token
from redrive.web.api import API
from redrive.web.reading import LARGEST
from tests.web.client import Client, Operator

CANARY = "canary-4242424242"
HOSTILE = "<script>alert('x')</script>\"'&\x1b[31m"


@dataclass
class Created:
    """The first event of a payment."""

    amount: int
    password: str


USERS = Users(
    {
        "ann": Account(Role.OPERATE, password=hash_password("open sesame", salt=bytes(16)), token=hash_token("ops")),
        "bob": Account(Role.READ, token=hash_token("dev")),
    }
)
OPERATE = {"Authorization": "Bearer ops"}
READ = {"Authorization": "Bearer dev"}


def _declare_topic(app: redrive.App) -> Any:
    """Declare a topic with a subscription that fails."""
    receipts = app.topic("receipts", dict[str, str])

    @receipts.subscribe("send", order="key", retry="3 1h")
    def send(event: dict[str, str]) -> None:
        """Fail, and repeat the secret."""
        raise RuntimeError(f"{HOSTILE} {event['password']}")

    return receipts


def _declare_schedules(app: redrive.App) -> None:
    @app.cron("0 3 * * *", tz="Europe/Kyiv")
    def nightly() -> None:
        """Do nothing."""

    @app.refresh("Refresh every 2 hours; retry 2 times every 5 minutes; then email the customer that it is disabled")
    def table(url: str, password: str) -> None:
        """Fail, and repeat the secret."""
        raise RuntimeError(f"{HOSTILE} {url} {password}")


def _start_schedules(app: redrive.App) -> None:
    app.tasks["nightly"].trigger()
    app.tasks["table"].track(f"key/{HOSTILE}", HOSTILE, CANARY)
    asyncio.run(Worker(app, until_empty=True).run())


@contextlib.contextmanager
def _filled() -> Iterator[redrive.App]:
    """Yield an App with a job in each of some states, and hostile texts in each column."""
    app = redrive.App("memory://")

    @app.task(retry="0")
    def charge(order: int, password: str) -> str:
        """Fail for odd orders, and repeat the secret."""
        if order % 2:
            raise RuntimeError(f"{HOSTILE} cannot pay with {password}")
        return password

    @app.task(queue="mail/out", retry="3 1h")
    def mail(to: str) -> None:
        """Fail."""
        raise RuntimeError(to)

    def pay(order: int, password: str) -> dict[str, str]:
        """Repeat the secret."""
        return {"token": password, "echo": f"{HOSTILE} {order} {password}"}

    @app.workflow()
    async def checkout(flow: redrive.Flow, order: int, password: str) -> str:
        """Pay, and wait for the parcel."""
        await flow.step(pay, order, password)
        flow.set("state", f"paid with {password}")
        return f"{await flow.wait_for(HOSTILE, str)} {password}"

    payment = app.machine("payment", data=dict)

    @payment.start(retry="3 1h")
    def created(event: Created, ctx: redrive.Context) -> None:
        """Fail for odd amounts, and repeat the secret."""
        ctx.set_data({"token": event.password, "echo": f"{HOSTILE} {event.password}"})
        if event.amount % 2:
            raise RuntimeError(f"{HOSTILE} {event.password}")

    receipts = _declare_topic(app)
    _declare_schedules(app)
    app.open()
    for order in range(4):
        charge.enqueue(order, CANARY)
    mail.enqueue(HOSTILE)
    checkout.start(1, CANARY, id=f"order/{HOSTILE}")
    run = checkout.start(2, CANARY, id="order-2")
    run.signal("unread", {"secret": CANARY})
    receipts.publish({"password": CANARY}, key=HOSTILE)
    payment.send("card", Created(1, CANARY))
    payment.send(f"card/{HOSTILE}", Created(2, CANARY))
    asyncio.run(Worker(app, until_empty=True).run())
    _start_schedules(app)
    mail.options(delay="1h", tags=["late"]).enqueue("later")
    app.queue("mail/out").pause(actor=HOSTILE)
    app.operations.start(app.operations.preview("cancel", redrive.Filter(queue=HOSTILE), why=HOSTILE), actor=HOSTILE)
    _register(app)
    yield app
    app.close()


def _register(app: redrive.App) -> None:
    """Register a worker that serves nothing which has jobs."""
    names = {"build": HOSTILE, "tasks": [HOSTILE], "queues": [HOSTILE]}
    app.store.run(workers.register(HOSTILE, concurrency=1, lease_for=timedelta(days=1), **names))


def _client(app: redrive.App, auth: Any = USERS, headers: dict[str, str] | None = None, **settings: Any) -> Client:
    served = create_app(app, auth=auth, reference="shop:app", **settings)
    return Client(served, headers)


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return a filled App."""
    with _filled() as app:
        yield app


@pytest.fixture(scope="module")
def still() -> Iterator[redrive.App]:
    """Return a filled App for all tests that change nothing."""
    with _filled() as app:
        yield app


@pytest.fixture
def client(app: redrive.App) -> Client:
    """Return a client that may operate."""
    return _client(app, headers=OPERATE)


@pytest.fixture
def looking(still: redrive.App) -> Client:
    """Return a client that may operate, and does not."""
    return _client(still, headers=OPERATE)


@pytest.fixture
def reader(app: redrive.App) -> Client:
    """Return a client that may read."""
    return _client(app, headers=READ)


PAGES = [
    "/",
    "/builds",
    "/health",
    "/jobs",
    "/jobs?q=state:dead",
    "/find",
    "/find?q=card",
    "/jobs/1",
    "/jobs/2",
    "/jobs/5",
    "/errors",
    "/errors?dead=1",
    "/errors?span=1h",
    "/errors?span=7d&dead=1",
    "/queues",
    "/queues/mail/out",
    "/autoscale",
    "/tasks",
    "/tasks/charge",
    "/problems/JobNotFound",
    "/workers",
    "/workers/3",
    "/schedules",
    "/schedules/nightly",
    "/schedules/nightly/calendar",
    "/schedules/table",
    f"/schedules/table/item?key=key/{quote(HOSTILE)}",
    "/operations",
    "/operations/preview?q=state:dead+task:charge&action=redrive&rate=100/s",
    "/operations/1",
    "/playground",
    "/playground?p=5+1s+catch+x&p2=Refresh+every+2+hours",
    "/audit",
    "/runs",
    "/runs?workflow=checkout&state=ready&hold=parked",
    "/runs/checkout/order-2",
    f"/runs/checkout/order/{quote(HOSTILE)}",
    "/machines",
    "/machines/payment",
    "/machines/payment?status=running&state=created",
    "/machines/payment/card",
    f"/machines/payment/card/{quote(HOSTILE)}",
    "/topics",
    "/topics/receipts/send",
    "/topics/receipts/send/move?to=beginning",
]


@pytest.mark.parametrize("path", PAGES)
def test_pages_show_hostile_texts_as_texts(looking: Client, path: str):
    """Each page is served with the strict policy, and stored texts are neither elements nor escape sequences."""
    response = looking.get(path)

    assert 200 == response.status_code
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "<script>alert" not in response.text
    assert "\x1b" not in response.text


@pytest.mark.parametrize("path", PAGES)
def test_secret_values_are_in_no_byte(looking: Client, path: str):
    """Secret arguments are shown neither themselves nor in errors, tracebacks and results, in HTML and in JSON."""
    api = "/api/v1/overview" if path == "/" else f"/api/v1{path}"
    found = [each for each in (path, api) if CANARY in looking.get(each).text]

    assert [] == found


def test_hidden_sites_show_no_arguments(app: redrive.App):
    """Sites may hide all arguments and results."""
    client = _client(app, headers=OPERATE, payloads=Payloads.HIDDEN)
    texts = [client.get(f"/jobs/{number}").text + client.get(f"/api/v1/jobs/{number}").text for number in (1, 2, 5)]

    assert not any(CANARY in text or "cannot pay with canary" in text for text in texts)


def test_every_template_is_free_of_exceptions():
    """No page marks texts as safe or has scripts or styles inside, which the policy would block."""
    from importlib import resources

    folder = resources.files("redrive.web") / "templates"
    texts = {each.name: each.read_text() for each in folder.iterdir()}
    bad = ("|safe", "| safe", "style=", " onclick", " onload", "<style", "javascript:", "autoescape")

    assert [] == [(name, word) for name, text in texts.items() for word in bad if word in text]


def test_the_scripts_and_the_style_of_the_dashboard_are_short():
    """All scripts that are not vendored have at most 200 lines together, of usual length; the style has 40 kB."""
    from importlib import resources

    folder = resources.files("redrive.web") / "static"
    own = [line for each in folder.iterdir() if each.name.endswith(".js") for line in each.read_text().splitlines()]

    assert 100 < len(own) <= 200
    assert 10_000 < len((folder / "style.css").read_bytes()) < 40_000
    assert [] == [line for line in own if len(line) > 120]


# ------------------------------------------------------------------------------------------------------------- content


def test_the_overview_names_what_needs_a_person(client: Client):
    """A paused queue with due jobs, dead jobs and missing workers are named with a command."""
    data = client.get("/api/v1/overview").json()

    assert {"dead", "workers"} <= {each["check"] for each in data["needs"]} | {"workers"}
    assert {"value": 2, "capped": False} == data["total"]["dead"]
    assert any("redrive jobs" in advice for each in data["needs"] for advice in each["advice"])


def _groups(client: Client, q: str = "") -> dict[str, dict[str, Any]]:
    """Return the error groups by task and title."""
    return {f"{each['task']}: {each['title']}": each for each in client.get(f"/api/v1/errors{q}").json()["items"]}


def test_the_overview_shows_what_ended(client: Client):
    """The charts have the attempts of the last hour as workers have counted them, and each has a table."""
    data = client.get("/api/v1/overview").json()
    ended = data["history"]["ended"]
    queue = next(each for each in data["queues"] if each["name"] == "mail/out")

    assert (60, 60.0) == (len(data["history"]["moments"]), data["history"]["width_seconds"])
    assert ended == {name: sum(each["ended"][name] for each in data["history"]["moments"]) for name in ended}
    assert (1, 1) == (queue["pace"]["ended"]["retried"], sum(queue["pace"]["bars"]))
    assert 0 < queue["pace"]["p50_seconds"] <= queue["pace"]["p95_seconds"]
    assert [48, 72, 90] == [
        len(client.get(f"/api/v1/overview?span={each}").json()["history"]["moments"]) for each in ("8h", "3d", "90d")
    ]
    html = client.get("/").text
    assert 5 == html.count('class="chart')
    table = re.search(r"Throughput as a table.*?</table>", html, re.DOTALL)
    assert table is not None
    assert ["Succeeded", "Retried", "Dead", "Snoozed", "Lost", "Cancelled", "Failed", "p50", "p95", "Running"] == (
        re.findall(r'<th class="n">(.*?)</th>', table[0])[:10]
    )
    # A row has its figures in the order of the heads, and rows in which nothing ended have no share of failures.
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", table[0])[1:]]
    moments = [each for each in data["history"]["moments"] if sum(each["ended"].values())]
    assert [str(each["ended"]["succeeded"]) for each in moments] == [row[0] for row in rows if row[6].endswith("%")]
    assert "Retries as a table" in html
    assert "Durations as a table" in client.get("/queues/mail/out").text
    assert "Busy slots as a table" in client.get("/workers").text
    task = client.get("/tasks/mail").text
    assert ("Ended attempts as a table" in task, "Durations as a table" in task) == (True, True)
    assert {"charge"} == {each["task"] for each in data["groups"]}


def test_a_queue_without_jobs_is_listed_while_its_past_is_shown(app: redrive.App, client: Client):
    """Queues with attempts within the span of the charts are listed, and have a page, without jobs of its own now."""
    sums = MinuteSums(floor(SystemClock().now(), MINUTE), 1, "gone", "old", 1, 0, 0, 0, 0, 0, [0] * 17)
    app.store.run(counters.write_counters(TallyRows((sums,), (), ())))

    assert "gone" in [each["name"] for each in client.get("/api/v1/overview").json()["queues"]]
    assert 1 == client.get("/api/v1/queues/gone").json()["history"]["ended"]["succeeded"]


def test_a_queue_shows_what_ended_by_task(client: Client):
    """The page of a queue has the charts of this queue alone, and a line for each task."""
    data = client.get("/api/v1/queues/mail/out").json()

    assert [("mail", 1)] == [(each["task"], each["ended"]["retried"]) for each in data["tasks"]]
    assert 1 == sum(data["history"]["ended"].values())


def test_errors_are_grouped(client: Client):
    """Failures of one kind are one group, with the number of dead jobs and without the arguments of any job."""
    found = _groups(client)
    charge = next(each for name, each in found.items() if "cannot pay" in name)

    assert ("charge", "builtins.RuntimeError", {"value": 2, "capped": False}) == (
        charge["task"], charge["type"], charge["dead"],
    )  # fmt: skip
    assert charge["title"].endswith("cannot pay with <argument>")
    assert (2, 2, 24) == (charge["failures"], charge["deaths"], len(charge["hours"]))
    assert charge["frame"].endswith("test_pages.py:charge")
    assert [charge] == [*_groups(client, "?task=charge").values()] == [*_groups(client, "?dead=1").values()]


def test_groups_are_shown_without_hostile_texts_and_secrets(client: Client, reader: Client):
    """The page of each group is served with its dead jobs; a reader has no form there."""
    for each in _groups(client).values():
        texts = [client.get(f"{api}/errors/{each['id']}").text for api in ("", "/api/v1")]

        assert not any("<script>alert" in text or "\x1b" in text or CANARY in text for text in texts[:1])
        assert CANARY not in texts[1]
        assert 'name="action"' not in reader.get(f"/errors/{each['id']}").text


def test_groups_are_paged(client: Client, monkeypatch: pytest.MonkeyPatch):
    """Each group is on exactly one page."""
    everything = list(_groups(client).values())
    monkeypatch.setattr("redrive.operate.errors.SHOWN", 2)
    seen, path = [], "/api/v1/errors"
    while path:
        data = client.get(path).json()
        seen += data["items"]
        path = f"/api/v1/errors?before={quote(data['before'])}" if data["before"] else ""

    assert everything == seen


def test_a_group_is_redriven(app: redrive.App, client: Client):
    """Operations with the filter of the page take exactly the dead jobs of the group."""
    charge = next(each for each in _groups(client).values() if each["dead"]["value"])
    data = client.get(f"/api/v1/errors/{charge['id']}").json()
    page = client.get(f"/errors/{charge['id']}").text
    preview = client.get(f"/api/v1/operations/preview?action=redrive&q={quote(data['q'])}").json()

    assert ["4", "2"] == [each["id"] for each in data["jobs"]]
    assert {charge["id"]} == {each["group"] for each in data["jobs"]}
    assert f'name="q" value="{data["q"]}"' in page
    assert {"value": 2, "capped": False} == preview["changes"]
    app.jobs.redrive(Filter(state=State.DEAD, caught=False, group=charge["id"]))
    assert [State.READY, State.READY] == [app.job(2).state, app.job(4).state]
    assert [] == client.get(f"/api/v1/errors/{charge['id']}").json()["jobs"]
    assert f'href="/errors/{charge["id"]}"' in client.get("/jobs/2").text


def test_a_group_is_muted(app: redrive.App, client: Client, reader: Client):
    """Muted groups are left out on the overview, marked in the list, and shown again after an unmute."""
    charge = next(each for each in _groups(client).values() if each["dead"]["value"])
    path, origin = f"/errors/{charge['id']}", {"Origin": "http://localhost"}

    assert charge["id"] in [each["id"] for each in client.get("/api/v1/overview").json()["groups"]]
    assert 303 == client.post(path, data={"action": "mute", "span": "24h"}, headers=origin).status_code
    assert charge["id"] not in [each["id"] for each in client.get("/api/v1/overview").json()["groups"]]
    assert ">muted<" in client.get("/errors").text
    assert client.get(f"/api/v1{path}").json()["group"]["muted_until"]
    assert 200 == client.post(f"/api/v1{path}", json={"action": "unmute"}).status_code
    assert charge["id"] in [each["id"] for each in client.get("/api/v1/overview").json()["groups"]]
    assert ["unmute", "mute"] == [each.action for each in app.database.audit(limit=2)]
    assert 403 == reader.post(path, data={"action": "mute"}, headers=origin).status_code
    wrong = ({"action": "mute", "span": "soon"}, {"action": "hush"}, {})
    assert not {200, 303, 500} & {client.post(path, data=each, headers=origin).status_code for each in wrong}
    assert 404 == client.post("/errors/1-0", data={"action": "mute"}, headers=origin).status_code


def test_groups_that_began_with_the_live_workers_are_new(app: redrive.App):
    """Groups are new if they failed first after the oldest live worker began; without a live worker none is."""
    for lease, expected in ((timedelta(minutes=1), None), (timedelta(days=30_000), EPOCH.isoformat())):
        app.store.run(workers.register("host:1", concurrency=1, lease_for=lease, now=EPOCH))
        client = _client(app, headers=OPERATE)  # which has read nothing yet
        since = {each["new_since"] for each in _groups(client).values()}

        assert {expected and expected.replace("+00:00", "Z")} == since
        assert (expected is not None) == (">new<" in client.get("/errors").text)


def test_jobs_link_to_what_created_them(app: redrive.App, client: Client):
    """The page of a job leads to its schedule, item, run, instance or subscription, each of which is served."""
    jobs = [each["id"] for each in client.get("/api/v1/jobs").json()["items"] if each["origin"] is not None]
    places = {client.get(f"/api/v1/jobs/{each}").json()["belongs_at"] for each in jobs}

    assert {"schedules", "runs", "machines", "topics"} == {each.split("/")[1] for each in places}
    assert any("/item?key=" in each for each in places)
    assert {200} == {client.get(each).status_code for each in places}


def test_a_job_shows_each_attempt_with_its_delay(client: Client):
    """The page of a job has why it is not running, its attempts and the delay after each."""
    data = client.get("/api/v1/jobs/5").json()

    assert ("5", "retrying", 1) == (data["job"]["id"], data["job"]["standing"], data["job"]["attempts"])
    assert [3600.0] == [each["waits_seconds"] for each in data["attempts"]]
    assert "queue paused" in data["job"]["why"]
    assert "<svg" in client.get("/jobs/5").text


def test_the_list_is_filtered_and_paged(app: redrive.App, client: Client):
    """Each job that matches is on exactly one page, also while new ones arrive."""
    late = app.tasks["mail"]
    for number in range(120):
        late.options(delay="1h", tags=["many"]).enqueue(str(number))
    seen: list[str] = []
    path = "/api/v1/jobs?q=tag:many"
    while path:
        data = client.get(path).json()
        seen += [each["id"] for each in data["items"]]
        late.options(delay="1h", tags=["many"]).enqueue("new")
        path = f"/api/v1/jobs?q=tag:many&before={data['before']}" if data["before"] else ""

    assert (120, 120) == (len(seen), len(set(seen)))
    assert sorted(map(int, seen), reverse=True) == list(map(int, seen))


def test_a_rare_filter_says_how_far_it_was_searched(client: Client, monkeypatch: pytest.MonkeyPatch):
    """Lists that read only the newest jobs name the last one, and lead to the older ones."""
    monkeypatch.setattr("redrive.stores.operations.admin.BUDGET", 3)
    first = client.get("/api/v1/jobs?q=task:charge&before=6").json()
    second = client.get(f"/api/v1/jobs?q=task:charge&before={first['searched_to']}").json()

    assert ("3", ["4", "3"]) == (first["searched_to"], [each["id"] for each in first["items"]])
    assert (None, ["2", "1"]) == (second["searched_to"], [each["id"] for each in second["items"]])
    some, none = (client.get(f"/jobs?q=task:{name}&before=6").text for name in ("charge", "nothing"))
    assert "2 jobs, newest first; searched down to job 3" in some
    assert "None of the newest jobs, down to job 3, matches." in none
    assert "Search further" in some
    assert "Search further" in none
    assert "searched all" not in some + none
    assert "down to job 3" in client.get("/jobs?q=task:charge&before=6").text


def test_a_wrong_filter_shows_a_caret_and_no_jobs(client: Client):
    """Filters that cannot be read are errors with their place, and keep their text."""
    response = client.get("/jobs?q=task:a stat:dead")

    assert 400 == response.status_code
    assert "stat: is not a word of the filter" in response.text
    assert 'value="task:a stat:dead"' in response.text
    assert "/jobs/1" not in response.text


# ------------------------------------------------------------------------------------------------------------- actions


def test_a_dead_job_is_run_now(app: redrive.App, client: Client):
    """The action has an effect, a line in the audit log, and leads back to the page."""
    response = client.post("/jobs/2", data={"action": "retry", "state": "dead"})

    assert (303, "/jobs/2") == (response.status_code, response.headers["location"])
    assert State.READY is app.job(2).state
    assert "ann via web" == app.database.audit()[0].actor
    assert "job 2 is due now" in client.get("/jobs/2").text


def test_a_refresh_of_another_page_takes_no_note(client: Client):
    """The note of an action waits for the page that follows, while open pages of the same browser are read again."""
    client.post("/queues/shelf", data={"action": "pause"})
    refreshed = client.get("/jobs", headers={"Redrive-Refresh": "1"}).text

    assert 'role="status"' not in refreshed
    assert "<span>queue shelf is paused" in client.get("/queues/shelf").text
    assert 'role="status"' not in client.get("/queues/shelf").text


def test_a_stale_page_changes_nothing(app: redrive.App, client: Client):
    """Jobs that changed since the page was read stay as they are."""
    response = client.post("/jobs/2", data={"action": "retry", "state": "ready"})

    assert 409 == response.status_code
    assert "job 2 is dead now, not ready" in response.text
    assert State.DEAD is app.job(2).state


def test_actions_that_do_not_fit_are_refused(client: Client):
    """Finished jobs are not cancelled, and the answer names what is possible."""
    response = client.post("/api/v1/jobs/1", json={"action": "cancel"})

    assert (409, "application/problem+json") == (response.status_code, response.headers["content-type"])
    assert "but none" in response.json()["detail"]


def test_a_queue_is_resumed_and_limited(app: redrive.App, client: Client):
    """Pause, resume and limits of a queue, with a slash in its name."""
    client.post("/queues/mail/out", data={"action": "resume"})
    form = {"action": "limit", "concurrency": "3", "per_partition": "", "rate": "10/1m"}
    client.post("/queues/mail/out", data=form)
    settings = app.queue("mail/out").settings

    assert (None, 3, None, "10/1m") == (
        settings.paused_at,
        settings.concurrency,
        settings.per_partition,
        str(settings.rate),
    )


def test_who_paused_is_in_the_views_of_queue_and_schedule(app: redrive.App):
    """The views have the operator and the time of a pause, and the audit log of one thing has its changes."""
    operator = Operator(app)
    operator.act("/queues/slow", action="pause")
    operator.act("/schedules/nightly", action="pause")
    queue, schedule = operator.read("/queues/slow")["load"], operator.read("/schedules/nightly")

    assert ("local via web", True) == (queue["paused_by"], queue["paused_at"] is not None)
    assert "local via web" == schedule["line"]["paused_by"]
    assert ["pause", "trigger"] == [each["action"] for each in schedule["acts"]]
    assert [("local via web", "queue")] == [
        (each["actor"], each["action"]) for each in operator.read("/audit?about=queue:slow")["items"]
    ]
    assert "schedule:nightly" == operator.read("/audit?about=schedule:nightly")["about"]
    assert 400 == operator.get("/api/v1/audit?about=nightly").status_code
    operator.act("/schedules/nightly", action="resume")
    operator.act("/queues/slow", action="resume")
    done = re.compile(r"<li><span><b>local via web</b>: (\w+)</span><span><time")
    assert ["resumed", "paused"] == done.findall(operator.get("/queues/slow").text)
    assert ["resumed", "paused"] == done.findall(operator.get("/schedules/nightly").text)
    assert None is operator.read("/schedules/nightly")["line"]["paused_by"]


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/jobs/999", {"action": "retry"}, 404),
        ("/jobs/99999999999999999999", {"action": "retry"}, 404),
        ("/jobs/2", {"action": "explode"}, 400),
        ("/queues/mail/out", {"action": "explode"}, 400),
        ("/queues/mail/out", {"action": "limit", "concurrency": "many"}, 400),
        ("/queues/mail/out", {"action": "limit", "rate": "fast"}, 400),
        ("/queues/mail/out", {"action": "limit", "concurrency": 0}, 400),
        ("/queues/mail/out", {"action": "limit", "concurrency": 2**31}, 400),
        ("/queues/mail/out", {"action": "limit", "per_partition": 10**30}, 400),
        ("/queues/mail/out", {"action": "limit", "rate": f"{2**31}/1s"}, 400),
        ("/tasks/charge", {"args": [1, ""], "at": "0001-01-01T00:00+23:59"}, 400),
        ("/operations", {"action": "redrive", "q": "state:dead", "rate": "fast"}, 400),
        ("/operations", {"action": "redrive", "q": "stat:dead"}, 400),
    ],
)
def test_wrong_input_is_refused_with_a_sentence(looking: Client, path: str, form: dict[str, str], status: int):
    """Each wrong input has a status and a sentence that names what would be right."""
    response = looking.post(f"/api/v1{path}", json=form)

    assert status == response.status_code
    assert len(response.json()["detail"]) > 10


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?before=-1",
        "/jobs?before=x",
        "/jobs/0",
        "/jobs/999",
        f"/jobs/{'9' * 5000}",
        f"/api/v1/jobs/{'9' * 5000}",
        f"/jobs?before={'0' * 20}{'9' * 30}",
        f"/jobs?limit={'0' * 19}15000",
        "/queues/none",
        "/nothing",
        "/?span=1y",
        "/errors/none",
        "/errors?before=1",
        "/errors?span=2h",
        "/errors?before=2026-01-01/x",
        "/queues/default?span=2h",
    ],
)
def test_unknown_pages_are_no_server_errors(looking: Client, path: str):
    """Missing pages are 404, and wrong numbers 400."""
    assert looking.get(path).status_code in {400, 404}


# ------------------------------------------------------------------------------------------------------------ security


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"/schedules/table/item?{urlencode({'key': 'a; $(reboot)'})}", ["schedules", "show", "table", "a; $(reboot)"]),
        ("/queues/two%20words", ["queues", "show", "two words"]),
        (
            "/playground?p=%7B%22version%22%3A%201%2C%20%22attempts%22%3A%203%7D",
            ["plan", '{"version": 1, "attempts": 3}'],
        ),
    ],
)
def test_commands_of_pages_are_quoted_for_a_shell(app: redrive.App, client: Client, path: str, words: list[str]):
    """A command that is copied from a page has each name as one word, without an effect of its own."""
    app.tasks["table"].track("a; $(reboot)", "example.org", "")  # type: ignore[attr-defined]
    app.queue("two words").pause()
    page = client.get(path)
    commands = re.findall(r'<p class="command"><code>(.*?)</code>', page.text)

    assert words == [each for each in shlex.split(html.unescape(commands[-1])) if each not in {"redrive", "shop:app"}]


def test_each_action_needs_the_role(app: redrive.App, reader: Client):
    """Readers see no form that changes something, and each action is refused."""
    before = app.job(2).record
    places = {"{id}": "2", "{name:path}": "default", "{workflow}": "checkout", "{run:path}": "order-2"}
    places |= {
        "{machine}": "payment",
        "{key:path}": "card",
        "{topic}": "receipts",
        "{subscription}": "send",
    }
    paths = [
        functools.reduce(lambda path, place: path.replace(*place), places.items(), each.path)
        for each in ROWS
        if each.template is None
    ]
    statuses = {path: reader.post(path, data={"action": "retry"}).status_code for path in paths}

    assert dict.fromkeys(paths, 403) == statuses
    assert before == app.job(2).record
    assert not any('name="action"' in reader.get(path).text for path in PAGES)


@pytest.mark.parametrize("path", [*PAGES, "/live", "/api/v1/jobs", "/jobs/x/livez/"])
def test_strangers_see_nothing(still: redrive.App, path: str):
    """Without credentials each page leads to the login page, and the API answers 401."""
    response = _client(still).get(path)

    assert response.status_code in {303, 401, 404}
    assert "charge" not in response.text


def test_a_login_lasts_in_all_processes(app: redrive.App):
    """Sessions of one process hold in another one; forged ones do not."""
    first, second = _client(app), _client(app)
    wanted = first.get("/jobs/2")
    response = first.post(
        "/login",
        data={"name": "ann", "password": "open sesame", "next": "/jobs/2"},
        headers={"Origin": "http://localhost"},
    )
    second.cookies = first.cookies

    assert "/login?next=/jobs/2" == wanted.headers["location"]
    assert (303, "/jobs/2") == (response.status_code, response.headers["location"])
    assert 200 == second.get("/jobs/2").status_code
    assert "httponly" in response.headers["set-cookie"].lower()

    second.cookies.set("redrive_session", "ImFubiI.forged.forged")
    assert 303 == second.get("/jobs/2").status_code


def test_wrong_passwords_are_slowed_down(app: redrive.App):
    """After five wrong passwords in a minute the address waits."""
    client = _client(app)
    form = {"name": "ann", "password": "wrong"}
    statuses = [client.post("/login", data=form, headers={"Origin": "http://localhost"}).status_code for _ in range(6)]

    assert [401, 401, 401, 401, 401, 429] == statuses


def test_logins_do_not_lead_to_other_sites(app: redrive.App):
    """The address after a login is one of this site."""
    form = {"name": "ann", "password": "open sesame", "next": "//evil.example"}
    response = _client(app).post("/login", data=form, headers={"Origin": "http://localhost"})

    assert "/" == response.headers["location"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"X-Forwarded-For": "10.0.0.1"}, 403),
        ({}, 200),
    ],
)
def test_open_sites_serve_this_machine_only(app: redrive.App, headers: dict[str, str], status: int):
    """Without authentication, neither other names nor proxies are served."""
    assert status == _client(app, NoAuth(), headers=headers).get("/").status_code


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
def test_forms_of_other_sites_change_nothing(app: redrive.App, origin: str | None):
    """Forms of another site, or without an origin, are refused."""
    headers = {} if origin is None else {"Origin": origin}

    assert 403 == _client(app, NoAuth()).post("/jobs/2", data={"action": "retry"}, headers=headers).status_code
    assert State.DEAD is app.job(2).state


def test_large_bodies_are_refused(client: Client):
    """Bodies have a limit."""
    assert 413 == client.post("/jobs/2", data={"action": "x" * LARGEST}).status_code


def test_a_callable_decides(app: redrive.App):
    """Applications may authenticate by their own function: a user, a stranger, or its login page."""

    async def resolve(credentials: Any) -> User | str | None:
        """Read a header of the application."""
        name = credentials.headers.get("x-user")
        return "https://login.example/" if name is None else User(name, Role.READ) if name != "eve" else None

    client = _client(app, resolve)

    assert "https://login.example/" == client.get("/").headers["location"]
    assert (200, 401) == (
        client.get("/", headers={"x-user": "ann"}).status_code,
        client.get("/", headers={"x-user": "eve"}).status_code,
    )


def test_there_is_no_default_authentication(app: redrive.App):
    """Dashboards cannot be made without a decision about their users."""
    with pytest.raises(TypeError):
        create_app(app)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="auth=None"):
        create_app(app, auth=None)  # type: ignore[arg-type]


def test_what_is_text_is_compressed(looking: Client):
    """Pages, answers of the API and styles are; fonts are already; a client that cannot read it gets plain text."""
    assets = looking.get("/").text.partition("/assets/")[2].partition("/")[0]
    paths = ["/", f"{API}/jobs", f"/assets/{assets}/style.css", f"/assets/{assets}/vendor/inter.woff2"]
    encodings = [looking.get(path).headers.get("content-encoding") for path in paths]
    plain = looking.get("/", headers={"Accept-Encoding": "identity"}).headers

    assert ["gzip", "gzip", "gzip", None] == encodings
    assert (None, "Accept-Encoding") == (plain.get("content-encoding"), plain["vary"])


def test_mounted_dashboards_keep_their_prefix(app: redrive.App):
    """All links, forms and assets of a mounted dashboard begin with its prefix, and its assets are served."""
    import re

    outer = Starlette(routes=[Mount("/ops/redrive", create_app(app, auth=USERS))])
    client = Client(outer, OPERATE)
    links = {
        link
        for path in PAGES
        for link in re.findall(r'(?:href|src|action)="(/[^"]*)"', client.get(f"/ops/redrive{path}").text)
    }

    assert links
    assert [] == [link for link in links if not link.startswith("/ops/redrive/")]
    assert [] == [
        link for link in links if "/assets/" in link and client.get(link.partition("#")[0]).status_code != 200
    ]
    assert "/ops/redrive/jobs/2" == client.post("/ops/redrive/jobs/2", data={"action": "retry"}).headers["location"]


def test_a_database_that_is_away_is_reported(app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """The page states that the database does not answer, with 503 and Retry-After, and names no details."""

    async def fail(*_: Any) -> None:
        raise StoreUnreachable("postgresql://secret@host cannot be reached")

    client = _client(app, headers=OPERATE)
    monkeypatch.setattr(type(app.store), "arun", functools.partialmethod(fail))
    response = client.get("/jobs")

    assert (503, "5") == (response.status_code, response.headers["retry-after"])
    assert "secret@host" not in response.text
