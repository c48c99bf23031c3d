"""Each row of what needs a person leads to a list with exactly what the row counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import redrive
from redrive.engine.outcome import Held, Unreadable
from redrive.engine.queue import QueueChange
from redrive.engine.runs import StepKind, StepOutcome
from redrive.engine.settle import CATCH_STUCK_AFTER
from redrive.engine.steps import NewStep
from redrive.stores.operations import admin, bulk, queues, workers
from redrive.testing import VirtualClock
from redrive.version import __version__
from tests.stores.helpers import FATAL, LONG, Harness, failed, harness, new
from tests.stores.machines import Automaton
from tests.stores.runs import ERROR, begin, record, run, step
from tests.web.client import Operator


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Yield an empty store."""
    with harness(request.param, "sync", tmp_path) as opened:
        yield opened


def _dead(store: Harness) -> None:
    for queue in ("a", "a", "b", "b"):
        store.end(store.take(new(queue=queue)), FATAL)
    store.do(admin.skip(1, now=store.now))


def _unserved(store: Harness) -> None:
    store.enqueue(*(new(queue=each) for each in ("a", "b", "b")))
    store.put(new(queue="later", delay=60))


def _unserved_one(store: Harness) -> None:
    store.enqueue(new(queue="a"), new(queue="a"))


def _paused(store: Harness) -> None:
    for name in ("served", "b", "empty"):
        store.do(queues.change(name, QueueChange(paused=True), now=store.now))
    store.enqueue(new(queue="served"), new(queue="b"))


def _oldest(store: Harness) -> None:
    store.enqueue(new(task="known", queue="served"), new(task="known", queue="served", delay=5))
    store.wait(3600)


def _tasks(store: Harness) -> None:
    store.enqueue(new(task="lost", queue="served"), new(task="lost", queue="served", delay=5))


def _several_tasks(store: Harness) -> None:
    store.enqueue(new(task="lost", queue="served"), new(task="gone", queue="served"))


def _catches(store: Harness) -> None:
    store.enqueue(*(new(task="known", retry="0 catch known") for _ in range(2)))
    for claim in store.claim(2):
        store.end(claim, FATAL)
    for _ in range(CATCH_STUCK_AFTER):
        for claim in store.claim(2):
            store.end(claim, failed("no bank"))
        store.wait(86_400)


def _held(store: Harness) -> None:
    begin(store, run("a"), run("b"), run("c"))
    for claim in store.claim(2):
        store.end(claim, Held("step 2 was `two`"))


def _arguments(store: Harness) -> None:
    store.enqueue(new(task="send"), new(task="send"), new(task="print"), new(task="print"))
    for claim in store.claim(3):
        store.end(claim, Unreadable("no field"))


def _policies(store: Harness) -> None:
    store.enqueue(new(task="send"), new(task="send"), new(task="print"))
    for claim, of_policy in zip(store.claim(3), (True, True, False), strict=True):
        store.end(claim, Unreadable("no field", of_policy))


def _undos(store: Harness) -> None:
    begin(store, run("a"), run("b"))
    refused = NewStep("u1", StepKind.UNDO, "refund", StepOutcome.FAILED, tries=1, error=ERROR)
    for claim in store.claim(2):
        record(store, claim, step("1"), refused)
        store.end(claim, FATAL)
        store.do(admin.skip(claim.id, now=store.now))


def _machines(store: Harness) -> None:
    payments = Automaton(store)
    for key in ("a", "b"):
        payments.send("Created", key=key)
        payments.fail()


def _operations(store: Harness) -> None:
    store.enqueue(new(task="known", queue="served"), new(task="known", queue="served"))
    for each in (redrive.Filter(queue="served"), redrive.Filter(task="known")):
        found = store.do(bulk.preview(bulk.BulkAction.CANCEL, each, bulk.BulkOptions(), now=store.now))
        started = store.do(bulk.start(found, now=store.now))
        store.do(bulk.failed(started.id, "no space", now=store.now))


def _leases(store: Harness) -> None:
    worker = store.worker()
    store.enqueue(new(task="known", queue="served"), new(task="known", queue="served"))
    store.claim(2, worker=worker)
    store.wait(7200)


# Of each situation: what makes it, the check of its row, the beginning of its title, and what the list has.
_SITUATIONS: dict[str, tuple[Callable[[Harness], None], str, str, int]] = {
    "dead": (_dead, "dead", "3 jobs died in 2 queues", 3),
    "unserved queues": (_unserved, "queues", "2 queues have no live worker", 2),
    "an unserved queue": (_unserved_one, "queues", "Queue a has no live worker", 2),
    "paused queues": (_paused, "queues", "2 queues are paused", 2),
    "the oldest job": (_oldest, "oldest", "The oldest due job waits", 2),
    "a task": (_tasks, "tasks", "The code has no task 'lost'", 2),
    "several tasks": (_several_tasks, "tasks", "The code has no task 'gone'", 2),
    "catch jobs": (_catches, "catches", "Catch job", 2),
    "held runs": (_held, "held", "2 runs are held", 2),
    "arguments": (_arguments, "unreadable", "3 jobs wait: no worker can read the arguments", 3),
    "policies": (_policies, "unreadable", "2 jobs wait: no worker can read the policy", 2),
    "undos": (_undos, "undos", "2 runs have ended with steps that were not undone", 2),
    "machines": (_machines, "machines", "2 instances have a transition that failed for good", 2),
    "operations": (_operations, "operations", "A batch of operation", 2),
    "leases": (_leases, "leases", "Worker", 2),
}


@pytest.mark.parametrize("name", _SITUATIONS)
def test_a_row_counts_what_its_list_has(store: Harness, name: str):
    """The number of a row is the number of rows of the page that it leads to, on each database."""
    prepare, check, title, number = _SITUATIONS[name]
    prepare(store)
    clock = VirtualClock(store.now)
    app = redrive.App(store.url, clock=clock)
    app.task(name="known")(_nothing)
    with contextlib.closing(app):
        serves = {"unserved queues": ("other",), "an unserved queue": ("other",)}.get(name)
        _serve(app, serves)
        rows = Operator(app).read("/overview")["needs"]
        row = next(each for each in rows if each["check"] == check and each["title"].startswith(title))

        assert number == _length(Operator(app), row, check)


def test_jobs_that_cannot_be_read_are_a_row_for_each_reason(store: Harness):
    """A filter has one reason, so that each row leads to its own jobs."""
    _policies(store)
    app = redrive.App(store.url, clock=VirtualClock(store.now))
    with contextlib.closing(app):
        rows = [each for each in Operator(app).read("/overview")["needs"] if each["check"] == "unreadable"]

    assert ["hold:bad_payload task:print", "hold:bad_policy task:send"] == sorted(
        " ".join(sorted(parse_qs(urlsplit(each["path"]).query)["q"][0].split())) for each in rows
    )


def _nothing() -> None: ...


def _serve(app: redrive.App, names: tuple[str, ...] | None) -> None:
    app.store.run(
        workers.register(
            "host:1",
            concurrency=4,
            lease_for=LONG,
            queues=names,
            tasks={"known"} if names is None else None,
            version=__version__,
            now=app.now(),
        )
    )


def _length(operator: Operator, row: dict[str, Any], check: str) -> int:
    """Return how many rows the page of a row has."""
    found = operator.read(row["path"])
    if "findings" in found:
        return sum(each["check"] == check and each["severity"] != "ok" for each in found["findings"])
    if "load" in found:
        return sum(found["load"][each]["value"] for each in ("due", "later"))
    return len(found["items" if "items" in found else "instances"])
