"""The JSON API: its description is current, valid and true; its lists, actions and problems."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

import redrive
from docs import generate
from redrive.engine.counters import OTHER, ErrorLine, TallyRows
from redrive.engine.lifecycle import State
from redrive.errors import StoreUnreachable
from redrive.operate.exchange import Request
from redrive.operate.problems import kinds
from redrive.operate.table import ROWS
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, redriving, requests, workers
from redrive.web import Account, Role, User, Users, create_app, hash_token, once
from redrive.web.api import API
from redrive.web.openapi import document
from tests import postgres
from tests.selection import sized
from tests.stores.helpers import T0
from tests.web.client import Client

USERS = Users(
    {
        "ann": Account(Role.OPERATE, token=hash_token("ops")),
        "bob": Account(Role.READ, token=hash_token("dev")),
        "eve": Account(Role.OPERATE, token=hash_token("second")),
    }
)
OPERATE = {"Authorization": "Bearer ops"}
SECOND = {"Authorization": "Bearer second"}

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]

PLACES = {
    "id": "1",
    "name": "default",
    "workflow": "checkout",
    "run": "order-1",
    "machine": "payment",
    "key": "card",
    "group": OTHER,
    "topic": "receipts",
    "subscription": "send",
}
"""Values of the variable parts of paths, with which each page exists."""

OTHERS = {
    "/tasks/{name}": {"name": "charge"},
    "/schedules/{name}": {"name": "table"},
    "/schedules/{name}/item": {"name": "table"},
    "/schedules/{name}/calendar": {"name": "nightly"},
    "/problems/{name}": {"name": "JobNotFound"},
    "/workers/{id}": {"id": "2"},
}

QUERIES = {
    ("get", "/schedules/{name}/item"): {"key": "key-1"},
    ("get", "/operations/preview"): {"action": "redrive", "q": "state:dead"},
    ("get", "/topics/{topic}/{subscription}/move"): {"to": "end"},
}
"""Parameters without which a page does not exist."""

BODIES = {
    "/erase": {"value": "nobody at all"},
    "/schedules": {"name": "acme", "when": "@daily", "task": "charge", "arguments": {"order": 7}, "replace": True},
    "/operations": {"action": "redrive", "q": "state:dead", "rate": "1/1h"},
    "/operations/{id}": {"action": "stop", "state": "running"},
    "/jobs/{id}": {"action": "retry", "state": "dead"},
    "/errors/{group}": {"action": "mute", "span": "24h"},
    "/queues/{name}": {"action": "limit", "concurrency": 3, "rate": None},
    "/tasks/{name}": {"args": [5], "queue": "mail", "tags": ["late"], "delay": "1h"},
    "/runs/{workflow}/{run}": {"action": "signal", "name": "parcel", "value": ["sent"]},
    "/machines/{machine}/{key}": {"action": "reset", "to": "created"},
    "/topics/{topic}/{subscription}": {"action": "move", "to": "beginning", "paused": "no"},
    "/schedules/{name}": {"action": "pause", "state": "active"},
    "/schedules/{name}/item": {"key": "key-1", "action": "trigger"},
}
"""Bodies of actions that are possible."""


@dataclass
class Created:
    """The first event of a payment."""

    amount: int


def _filled(app: redrive.App) -> redrive.App:
    """Declare one object of each kind, and make jobs."""

    @app.task(retry="0")
    def charge(order: int) -> None:
        """Fail."""
        raise RuntimeError(f"order {order}")

    @app.workflow()
    async def checkout(flow: redrive.Flow, order: int) -> str:
        """Wait for the parcel."""
        return await flow.wait_for("parcel", str)

    receipts = app.topic("receipts", dict[str, str])

    @receipts.subscribe("send", order="key", retry="3 1h")
    def send(event: dict[str, str]) -> None:
        """Fail."""
        raise RuntimeError(event["to"])

    @app.cron("0 3 * * *", tz="Europe/Kyiv")
    def nightly() -> None:
        """Do nothing."""

    @app.refresh("Refresh every 2 hours; retry 2 times every 5 minutes")
    def table(url: str) -> None:
        """Fail."""
        raise RuntimeError(url)

    payment = app.machine("payment", data=dict)

    @payment.start(retry="3 1h")
    def created(event: Created) -> None:
        """Do nothing."""

    app.open()
    charge.enqueue_many(range(4))
    checkout.start(1, id="order-1")
    receipts.publish({"to": "ann"}, key="ann")
    payment.send("card", Created(1))
    table.track("key-1", "https://example.com")
    asyncio.run(Worker(app, until_empty=True).run())
    app.store.run(workers.register("w", concurrency=1, lease_for=timedelta(days=1)))
    group = ErrorLine(OTHER, "charge", "ERROR", "", "", "", T0, T0, 1)
    app.store.run(counters.write_counters(TallyRows((), (), (group,))))
    return app


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App in memory."""
    with contextlib.closing(redrive.App("memory://")) as app:
        yield _filled(app)


@pytest.fixture
def client(app: redrive.App) -> Client:
    """Return a client that may operate."""
    return Client(create_app(app, auth=USERS), OPERATE)


# -------------------------------------------------------------------------------------------------------- description


def test_the_committed_description_is_current():
    """`make openapi` writes the description anew; the file has what it would write."""
    assert generate.openapi() == generate.OPENAPI.read_text()


def test_the_description_is_valid():
    """The description conforms to OpenAPI 3.1, and each route is in it under a name and an address of its own."""
    described = document()
    calls = [call for methods in described["paths"].values() for call in methods.values()]

    validate(described)
    assert len(calls) == len(ROWS) + 3 == len({call["operationId"] for call in calls})
    assert {"/livez", "/readyz", "/startupz"} == {path for path in described["paths"] if not path.startswith(API)}
    assert [] == [route.path for route in ROWS if route.template is None and route.form is None]


def test_a_mounted_dashboard_names_its_own_address(client: Client):
    """The served description has the place of the dashboard as its server, and needs a login."""
    assert [{"url": "/ops"}] == document("/ops")["servers"]
    assert document() == client.get(f"{API}/openapi.json").json()
    assert 401 == client.get(f"{API}/openapi.json", headers={"Authorization": "Bearer wrong"}).status_code


class _Prover:
    """Sends requests, and checks that the answers are as described."""

    def __init__(self, app: redrive.App) -> None:
        transport = httpx.ASGITransport(create_app(app, auth=USERS))
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=OPERATE)
        self._runner = asyncio.Runner()
        self.answered: dict[str, set[int]] = {}
        self.user = OPERATE

    def send(self, case: Any, **replaced: Any) -> httpx.Response:
        """Send a generated request, and check the answer."""
        for name, value in replaced.items():
            setattr(case, name, value)
        request = case.as_transport_kwargs(base_url="http://localhost")
        request["headers"] = {**request["headers"], **self.user}
        del request["cookies"]
        if "data" in request:
            request["content"] = request.pop("data")
        response = self._runner.run(self._client.request(**request))
        case.validate_response(response, checks=CHECKS)
        assert response.status_code < 500
        self.answered.setdefault(case.operation.label, set()).add(response.status_code)
        return response

    def close(self) -> None:
        """Close the client, and the connections of its event loop."""
        self._runner.run(self._client.aclose())
        self._runner.close()


@pytest.mark.parametrize(("kind", "examples"), [("sqlite", sized(1, 3)), ("postgres", 1)])
def test_the_description_is_true(kind: str, examples: int, tmp_path: Any):
    """Each route answers generated requests, right and wrong ones, as described, and real ones with 200."""
    described = document("http://localhost")
    del described["security"], described["components"]["securitySchemes"]
    schema = schemathesis.openapi.from_dict(described)
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/shop.db" if kind == "sqlite" else stack.enter_context(postgres.lent())
        app = stack.enter_context(contextlib.closing(_filled(redrive.App(url))))
        prover = stack.enter_context(contextlib.closing(_Prover(app)))
        calls = [each.ok() for each in schema.get_all_operations() if each.ok().tags != ["Health"]]
        for call in calls:
            _prove(prover, call, GenerationMode.POSITIVE, examples)
            if _can_be_wrong(described["paths"][call.path][call.method]):
                _prove(prover, call, GenerationMode.NEGATIVE, examples)
        prover.user = SECOND  # A user may change 60 things in a minute.
        for call in calls:
            _prove_real(prover, call)

    assert [] == [label for label, statuses in prover.answered.items() if 200 not in statuses]


def _can_be_wrong(call: dict[str, Any]) -> bool:
    """Return False if each text fits the parameters."""
    parameters = (each["schema"] for each in call["parameters"])
    return "requestBody" in call or any(each.keys() - {"minLength"} != {"type"} for each in parameters)


def _prove(prover: _Prover, call: Any, mode: GenerationMode, examples: int) -> None:
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(call.as_strategy(generation_mode=mode))
    def prove(case: Any) -> None:
        prover.send(case)

    prove()


def _prove_real(prover: _Prover, call: Any) -> None:
    path = call.path.removeprefix(API)
    places = {name: PLACES[name] for name in re.findall(r"{(\w+)}", path)} | OTHERS.get(path, {})
    query = QUERIES.get((call.method, path), {})
    case = call.Case(path_parameters=places, query=query)
    if call.method == "post":
        case.body, case.media_type = BODIES[path], "application/json"
        checked = prover.send(case, query={**query, "dry_run": "1"})
        assert (200, True) == (checked.status_code, checked.json().get("dry_run")), checked.text
    assert prover.send(case, query=query).status_code in {200, 201, 202}


# -------------------------------------------------------------------------------------------------------------- lists


def test_lists_link_to_their_next_pages(client: Client):
    """The header Link leads to the next page until the last one, with the filter and the limit."""
    seen: list[str] = []
    path = f"{API}/jobs?q=task:charge&limit=3"
    while path:
        response = client.get(path)
        seen += [each["id"] for each in response.json()["items"]]
        path = response.links.get("next", {}).get("url", "")

    assert ["4", "3", "2", "1"] == seen


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("before=", "leave it out"),
        ("limit=0", "1 to 200"),
        ("limit=201", "1 to 200"),
        ("befor=1", "did you mean before?"),
        ("q=%00", "NUL"),
    ],
)
def test_wrong_parameters_are_refused(client: Client, query: str, part: str):
    """Parameters that are unknown or out of their range are errors, and what would be right is named."""
    response = client.get(f"{API}/jobs?{query}")

    assert 400 == response.status_code
    assert part in response.json()["detail"]


# ------------------------------------------------------------------------------------------------------------ actions


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"action": "retry", "sate": "dead"}, "$"),
        ({"action": "explode"}, "$.action"),
        ({"action": "cancel", "why": 3}, "$.why"),
        ([], "$"),
    ],
)
def test_wrong_members_are_refused(app: redrive.App, client: Client, body: Any, path: str):
    """Bodies with a wrong or unknown member change nothing; the answer has its path, and the members that exist."""
    response = client.post(f"{API}/jobs/1", json=body)

    assert (400, path) == (response.status_code, response.json()["errors"][0]["path"])
    assert "action (retry, cancel, skip), state, why" in response.json()["detail"]
    assert State.DEAD is app.job(1).state


def test_actions_are_checked_without_a_change(app: redrive.App, client: Client):
    """With dry_run=1 an action is refused as without, or changes nothing."""
    possible = client.post(f"{API}/jobs/1?dry_run=1", json={"action": "retry"})
    refused = client.post(f"{API}/jobs/1?dry_run=1", json={"action": "cancel"})
    unclear = client.post(f"{API}/jobs/1?dry_run=yes", json={"action": "retry"})

    assert [200, 409, 400] == [each.status_code for each in (possible, refused, unclear)]
    assert possible.json()["dry_run"]
    assert State.DEAD is app.job(1).state


def test_limits_that_are_not_given_stay(app: redrive.App, client: Client):
    """Limits are set to a number, taken away by null, and left as they are without a member."""
    client.post(f"{API}/queues/default", json={"action": "limit", "concurrency": 3, "rate": "10/1m"})
    client.post(f"{API}/queues/default", json={"action": "limit", "concurrency": None})

    assert (None, "10/1m") == (app.queue("default").settings.concurrency, str(app.queue("default").settings.rate))


@pytest.mark.parametrize(
    ("given", "status"),
    [({"data": {"action": "retry"}}, 415), ({"content": b"{"}, 400), ({"content": b"x" * 70_000}, 413)],
)
def test_bodies_are_small_json(client: Client, given: dict[str, Any], status: int):
    """The body of an action is JSON of at most 64 KiB."""
    assert status == client.post(f"{API}/jobs/1", **given).status_code


def test_a_repeated_request_has_one_effect(app: redrive.App, client: Client):
    """Requests with the key of an earlier one have its answer; with another content it is refused."""
    path, key = f"{API}/runs/checkout/order-1", {"Idempotency-Key": "k-1"}
    body = {"action": "signal", "name": "parcel", "value": 1}
    first, again = client.post(path, json=body, headers=key), client.post(path, json=body, headers=key)
    other = client.post(path, json={**body, "value": 2}, headers=key)

    assert (200, first.json(), "true") == (again.status_code, again.json(), again.headers["idempotency-replayed"])
    assert 422 == other.status_code
    assert 1 == len(client.get(path).json()["unread"])


def test_a_refused_request_can_be_repeated(app: redrive.App, client: Client):
    """The key of a refused request is free again; that of one that has not ended is not."""
    key = {"Idempotency-Key": "k-1"}
    refused = client.post(f"{API}/jobs/1", json={"action": "cancel"}, headers=key)
    done = client.post(f"{API}/jobs/1", json={"action": "retry"}, headers=key)
    app.store.run(requests.forget("ann", "k-1"))
    app.store.run(requests.begin("ann", "k-1", _digest("/jobs/1", {"action": "cancel"})))
    unfinished = client.post(f"{API}/jobs/1", json={"action": "cancel"}, headers=key)
    wrong = client.post(f"{API}/jobs/1", json={"action": "cancel"}, headers={"Idempotency-Key": "a b"})

    assert [409, 200, 409, 400] == [each.status_code for each in (refused, done, unfinished, wrong)]
    assert "has begun and not ended" in unfinished.json()["detail"]
    assert State.READY is app.job(1).state


def test_an_unknown_effect_keeps_the_key(app: redrive.App, client: Client, monkeypatch: pytest.MonkeyPatch):
    """The key of a request with an unknown effect, because the database went away, is not free."""
    key = {"Idempotency-Key": "k-1"}

    def fail(*_: Any, **__: Any) -> None:
        raise StoreUnreachable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(redriving, "retry", fail)
        lost = client.post(f"{API}/jobs/1", json={"action": "retry"}, headers=key)
    again = client.post(f"{API}/jobs/1", json={"action": "retry"}, headers=key)

    assert (503, 5, 409) == (lost.status_code, lost.json()["retry_after"], again.status_code)
    assert State.DEAD is app.job(1).state


def _digest(path: str, form: dict[str, str]) -> str:
    return once._digest(Request("POST", API + path, User("ann"), form=form))


# ----------------------------------------------------------------------------------------------------------- problems


def test_problems_have_the_members_of_the_standard(client: Client):
    """Problems have the address of a page about their kind, the path of the request, and the name of the request."""
    response = client.get(f"{API}/jobs/70412", headers={"X-Request-ID": "r-1"})

    assert "application/problem+json" == response.headers["content-type"]
    assert response.json() == {
        "type": "/api/v1/problems/JobNotFound",
        "title": "There is no such job.",
        "status": 404,
        "detail": "there is no job 70412",
        "instance": "/api/v1/jobs/70412",
        "request_id": "r-1",
    }


def test_a_wrong_filter_has_a_caret(client: Client):
    """Lists with a filter that cannot be read are problems with the place in the filter."""
    (fault,) = client.get(f"{API}/jobs?q=task:a stat:dead").json()["errors"]

    assert ("q", "task:a stat:dead\n       ^") == (fault["path"], fault["caret"])


def test_each_error_has_a_page(client: Client):
    """The type of a problem is the address of a page about the error, as JSON and for a browser."""
    statuses = {kind.__name__: client.get(f"{API}/problems/{kind.__name__}").json()["status"] for kind in kinds()}

    assert 404 == statuses["JobNotFound"]
    assert 400 == statuses["PayloadError"]
    assert 503 == statuses["StoreUnreachable"]
    assert "There is no such job." in client.get("/problems/JobNotFound").text
    assert 404 == client.get("/problems/Exception").status_code


def test_other_methods_are_refused(client: Client):
    """Methods that a path does not have are answered with 405, and the methods that it has."""
    for path in ("/jobs/1", "/topics/orders/mail"):
        response = client._send("DELETE", f"{API}{path}")

        assert 405 == response.status_code
        assert {"GET", "HEAD", "POST"} == set(response.headers["allow"].split(", "))


def test_the_rows_of_a_path_stand_together():
    """They are one route, so that its header Allow has the methods of all of them."""
    paths = [path for path, _ in itertools.groupby(ROWS, key=lambda each: each.path)]

    assert sorted(set(paths)) == sorted(paths)
