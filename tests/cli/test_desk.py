"""Commands print the same documents of a database here and of a dashboard that serves it (`redrive --url`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import msgspec
import pytest

import redrive as package
from redrive.engine.counters import ErrorLine, TallyRows
from redrive.operate.table import ROWS
from redrive.stores.operations import counters, workers
from redrive.testing import VirtualClock, drain
from redrive.web import Account, Payloads, Role, Users, create_app, hash_token
from tests.cli.commands import lines
from tests.cli.conftest import Output
from tests.web.served import served

ARGUMENTS = {
    "app": "desk:app",
    "words": "2",
    "number": "2",
    "task": "charge",
    "group": "GROUP",
    "queue": "default",
    "name": "prices",
    "key": "tea",
    "machine": "payment",
    "state": "created",
    "topic": "clicks",
    "subscription": "count",
    "run": "checkout/order-1",
    "names": "checkout/order-1",
    "step": "1",
    "value": "null",
    "moves": "created=paid",
    "to": "end",
    "event": "1",
    "when": "@daily",
}
"""Values for the arguments of commands, by their names."""

VIEWS = {words for row in ROWS if row.form is None for words in row.words} - {"topics move --dry-run"}
"""The commands that show a view; the preview of a move is no document."""


@dataclass
class Created:
    """The first event of a payment."""

    amount: int


def _app() -> package.App:  # noqa: PLR0915 - one of each
    """Return an App with something to show in each view."""
    app = package.App("memory://", clock=VirtualClock())
    app.reference = ARGUMENTS["app"]

    @app.task(retry="1 1h")
    def charge(cents: int) -> int:
        """Fail for odd amounts."""
        if cents % 2:
            raise ConnectionError(f"no route for {cents}")
        return cents

    @app.cron("30 3 * * *", tz="Europe/Kyiv")
    def night() -> None:
        """Do nothing."""

    @app.refresh("Refresh every 2 hours; retry 2 times every 5 minutes")
    def prices(shop: str) -> None:
        """Fail."""
        raise TimeoutError(shop)

    @app.workflow()
    async def checkout(flow: package.Flow) -> str:
        """Wait for the parcel."""
        flow.set("state", "waits")
        return await flow.wait_for("parcel", str)

    payment = app.machine("payment")

    @payment.start(retry="0")
    def created(event: Created) -> None:
        """Fail for odd amounts."""
        if event.amount % 2:
            raise RuntimeError(event.amount)

    clicks = app.topic("clicks", int)

    @clicks.subscribe("count", order="key", retry="1 1h")
    def count(event: int) -> None:
        """Fail."""
        raise ConnectionError(event)

    app.open()
    charge.enqueue(1)
    charge.options(tags=["late"]).enqueue(3)
    charge.enqueue(2)
    checkout.start(id="order-1")
    prices.track("tea", "shop")
    payment.send("a", Created(1))
    payment.send("tea", Created(2))
    clicks.publish(7, key="k")
    drain(app, within="3h")
    charge.options(delay="1d").enqueue_many([4, 6])
    app.queue("default").limit(concurrency=5, rate="5/1m")
    for action in ("cancel", "redrive"):
        found = app.operations.preview(action, package.Filter(task="charge"))
        app.operations.finish(app.operations.start(found, rate="100/s").id)
    app.schedules.pause("night")
    at = app.now()
    error = ErrorLine("1-0", "charge", "ERROR", "ValueError", "no route", "pay.py:7 in charge", at, at, 1)
    app.store.run(counters.write_counters(TallyRows((), (), (error,))))
    app.store.run(workers.register("here:1", concurrency=2, lease_for=timedelta(hours=1), now=at))
    return app


@pytest.fixture(scope="module")
def desk() -> Iterator[package.App]:
    """Return the App, in a module of its own."""
    module = ModuleType("desk")
    module.app = _app()  # type: ignore[attr-defined]
    sys.modules["desk"] = module
    yield module.app
    module.app.close()
    del sys.modules["desk"]


@pytest.fixture(scope="module")
def server(desk: package.App, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Serve a dashboard that hides nothing, and return the options that name it."""
    token = tmp_path_factory.mktemp("desk") / "token"
    token.write_text("ops")
    users = Users({"ci": Account(Role.OPERATE, token=hash_token("ops"))})
    with served(create_app(desk, auth=users, payloads=Payloads.SHOW, reference="desk:app")) as url:
        yield ["--url", url, "--token-file", str(token)]


def _commands() -> Iterator[list[str]]:
    for line in lines(ARGUMENTS):
        if line[-1] == "--json" and " ".join(line[: line.index("desk:app")]) in VIEWS:
            yield line


COMMANDS = list(_commands())


def test_each_view_has_a_command_with_json():
    """The commands below are all of the table, so that a new row is compared too."""
    found = {" ".join(line[: line.index("desk:app")]) for line in COMMANDS}

    assert found == VIEWS


@pytest.mark.parametrize("line", COMMANDS, ids=" ".join)
def test_json_is_the_same_here_and_through_a_url(
    redrive: Callable[..., Output], desk: package.App, server: list[str], line: list[str]
):
    """A command prints the document of the JSON API, whichever way it reads."""
    words = _named(desk, line)
    here = redrive(*words)
    there = redrive(*server, *(word for word in words if word != "desk:app"))

    assert here.status == there.status, there.err
    assert here.out
    assert _documents(here) == _documents(there)


@pytest.mark.parametrize("line", COMMANDS, ids=" ".join)
def test_text_is_the_same_here_and_through_a_url(
    redrive: Callable[..., Output], desk: package.App, server: list[str], line: list[str]
):
    """A command prints the same lines of a view for readers, but for what only a database at hand counts."""
    words = _named(desk, line[:-1])
    here = redrive(*words)
    there = redrive(*server, *(word for word in words if word != "desk:app"))

    assert here.status == there.status, there.err
    if " ".join(words[:2]) in {"machines list", "schedules list", "schedules show"}:
        assert here.out.splitlines()[0].split()[0] == there.out.splitlines()[0].split()[0]
    else:
        assert here.out.replace("desk:app", "APP") == there.out.replace("desk:app", "APP")


def _named(desk: package.App, line: list[str]) -> list[str]:
    """Return a command line with the name of an error group."""
    if "GROUP" not in line:
        return line
    (group, *_) = desk.store.run(counters.groups(now=desk.now()))
    return [group.fingerprint if word == "GROUP" else word for word in line]


def _documents(output: Output) -> list[dict[str, Any]]:
    """Return the documents, without the present instant, which a dashboard reads by its own clock between two reads."""
    found = [msgspec.json.decode(line, type=dict[str, Any]) for line in output.out.splitlines()]
    return [{name: value for name, value in each.items() if name != "at" or "actor" in each} for each in found]


ACTIONS = {
    "queues pause default": "queue default: paused since 2026-",
    "queues resume default": "queue default: open; 5 at once, rate 5/1m\n",
    "queues limit default --unordered --aging none --concurrency 4": "queue default: open; 4 at once, rate 5/1m\n",
    "topics pause clicks count": "subscription clicks.count is paused\n",
    "topics resume clicks count": "subscription clicks.count goes on\n",
    "topics move clicks count end --dry-run": "0 unread events would be skipped, 0 would be delivered again",
    "queues forget default": "queue default: open; no limits\n",
    "topics redrive clicks count --limit 0": "Expected `int` >= 1",
    "topics redrive clicks count --rate 1/s": "clicks.count: 1 dead events redriven\n",
    "topics move clicks count 2026-01-01": "clicks.count: moved to 2026-01-01T00:00:00+00:00; 1 pending",
    "topics move clicks count beginning": "clicks.count: moved to beginning; 0 pending",
    "machines retry payment a": "payment/a: (new), running; to created on Created",
    "machines reset payment tea created": "payment/tea: created, ",
    "schedules resume night": "cron night: active\n",
    "schedules trigger night": "cron night was started as job ",
    "schedules backfill night --since 2025-12-30 --until 2025-12-31": "cron night: 1 occurrences were started\n",
    'schedules create acme @daily charge --arguments {"cents":2} --priority -1': "cron acme: active, next 2026-",
    'schedules create acme @daily charge --arguments {"cents":2}': "exists with other values",
    "schedules delete acme": "cron acme is deleted\n",
    "schedules delete night": "'delete' is not possible",
    "schedules update prices tea": "prices/tea: attempt 1 runs as job ",
    "schedules pause prices tea": "prices/tea: paused, attempt 1 runs as job ",
    "errors mute 1-0 --for 1h": "group 1-0 is muted for 1h\n",
    "errors unmute 1-0": "group 1-0 is not muted any more\n",
    "runs pause checkout/order-1 --until 2026-03-01T00:00Z": "run checkout/order-1 is paused until 2026-03-01T00:00:00",
    "runs resume checkout/order-1": "run checkout/order-1 goes on\n",
    "runs cancel checkout/order-1": "run checkout/order-1 ends at its next step\n",
    "enqueue charge --args [8] --json": '{"job":"',
    "jobs cancel 1 --dry-run": "1 jobs would be changed",
    "jobs repolicy --task charge --dry-run": "no job can be changed",
    "topics skip clicks count 1": "clicks.count: ",
    "machines skip payment tea": "'skip' is not possible",
    "operations undo 1": "operation 3 undoes operation 1",
    "operations stop 1": "operation 1 is ",
}


def test_actions_work_through_a_url(redrive: Callable[..., Output], server: list[str]):
    """Commands print what they have done, or why it is not possible."""
    wrong = {}
    for line, expected in ACTIONS.items():
        found = redrive(*server, *line.split())
        if expected not in found.out + found.err:
            wrong[line] = found

    assert not wrong, "\n".join(f"{k}: {v.out}{v.err}" for k, v in wrong.items())
