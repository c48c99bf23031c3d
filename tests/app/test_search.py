"""``search=``: fields of arguments that each enqueue writes as tags, whichever way a job is made."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context, Filter, Flow, Tasks
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.testing import VirtualClock, drain
from tests import postgres

every_store = pytest.mark.parametrize("app", ["memory", "sqlite", "turso", "postgres"], indirect=True)


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """Yield an app with a virtual clock, in memory unless the test asks for another store."""
    kind = getattr(request, "param", "memory")
    files = {
        "memory": "memory://",
        **{each: f"{each}:///{tmp_path}/jobs.db?synchronous=normal" for each in ("sqlite", "turso")},
    }
    with postgres.lent() if kind == "postgres" else contextlib.nullcontext(files[kind]) as url:
        made = App(url, clock=VirtualClock())
        yield made
        made.close()


@dataclasses.dataclass
class Line:
    """A line of an order."""

    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    """An order with a nested list."""

    invoice: str
    lines: list[Line] = dataclasses.field(default_factory=list)
    due: date | None = None
    total: Decimal = Decimal("1.50")


@pytest.fixture
def pay(app: App) -> Any:
    """Return a task with a declared field."""

    @app.task(search=["order.invoice", "order.lines.sku", "order.due", "order.total"], retry="0")
    def pay(order: Order) -> None:
        raise OSError(order.invoice)

    return pay


def found(app: App, tag: str) -> list[int]:
    """Return the jobs with a tag, oldest first."""
    return [job.id for job in app.jobs.select(Filter(tag=tag, oldest_first=True))]


@every_store
def test_values_of_declared_fields_are_written_with_each_enqueue(app: App, pay: Any):
    """Alone, in bulk, asynchronously, with tags of the call, with keys, and with a delay."""
    order = Order("inv-1", [Line("a"), Line("b")], date(2026, 3, 1))
    single = pay.enqueue(order)
    tagged = pay.options(tags=["eu", "inv-1"], delay="1h", key="k").enqueue(order)
    many = pay.enqueue_many([order, Order("inv-2")])
    awaited = asyncio.run(pay.aenqueue(order))

    assert ("1.50", "2026-03-01", "a", "b", "inv-1") == single.tags
    assert ("1.50", "2026-03-01", "a", "b", "eu", "inv-1") == tagged.tags
    assert [single.id, tagged.id, many[0].id, awaited.id] == found(app, "inv-1")
    assert ("1.50", "inv-2") == many[1].tags


def test_an_enqueue_in_the_transaction_of_the_user_writes_the_tags(tmp_path: Path):
    """They exist if and only if the transaction commits."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(search=["invoice"])
    def pay(invoice: str) -> None:
        """Do nothing."""

    app.open()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as mine:
        mine.execute("BEGIN IMMEDIATE")
        job = pay.enqueue("inv-1", using=mine)
        mine.execute("COMMIT")
        mine.execute("BEGIN IMMEDIATE")
        pay.enqueue_many(["inv-2", "inv-3"], using=mine)
        mine.execute("ROLLBACK")

    assert [job.id] == found(app, "inv-1")
    assert [] == found(app, "inv-2")
    app.close()


def test_an_enqueue_in_a_transaction_of_postgresql_writes_the_tags():
    """Likewise, by psycopg."""
    with postgres.lent() as url:
        app = App(url)

        @app.task(search=["invoice"])
        def pay(invoice: str) -> None:
            """Do nothing."""

        app.open()
        with postgres.connect(autocommit=False) as mine:
            job = pay.enqueue("inv-1", using=mine)
            mine.commit()
            pay.enqueue("inv-2", using=mine)
            mine.rollback()

        assert ([job.id], []) == (found(app, "inv-1"), found(app, "inv-2"))
        app.close()


@every_store
def test_a_job_of_a_handler_has_tags(app: App):
    """Jobs that are written with the end of an attempt are found as others are."""

    @app.task(search=["invoice"])
    def pay(invoice: str) -> None:
        """Do nothing."""

    @app.task
    def order(invoice: str) -> None:
        pay.enqueue(invoice)
        pay.options(immediate=True).enqueue(f"{invoice}-now")

    order.enqueue("inv-1")
    drain(app)

    assert (1, 1) == (len(found(app, "inv-1")), len(found(app, "inv-1-now")))


@every_store
def test_a_run_and_the_runs_that_it_calls_have_tags(app: App):
    """A workflow declares the fields of its arguments, and its children theirs."""

    @app.workflow(search=["invoice"])
    async def child(flow: Flow, invoice: str) -> None:
        """Do nothing."""

    @app.workflow(search=["invoice"])
    async def checkout(flow: Flow, invoice: str) -> None:
        await flow.call(child, f"{invoice}-child")

    run = checkout.start("inv-1", id="order-1")
    checkout.options(priority=3).start("inv-2")
    drain(app)
    fork = run.fork()

    assert [run.job.id, fork.job.id] == found(app, "inv-1")
    assert (1, 1) == (len(found(app, "inv-1-child")), len(found(app, "inv-2")))


def test_transitions_and_failed_deliveries_have_tags(app: App):
    """Fields of the events of a machine, and of a topic, are those of the jobs that they make."""
    machine = app.machine("payment", search=["invoice", "none"])

    @machine.start(retry="0")
    def created(event: Order) -> None:
        raise OSError(event.invoice)

    topic = app.topic("orders", Order)

    @topic.subscribe("mail", retry="0", search=["invoice"])
    def mail(event: Order) -> None:
        raise OSError(event.invoice)

    machine.send("card-1", Order("inv-1"))
    topic.publish(Order("inv-2"), key="acme")
    drain(app)

    assert ["payment.created"] == [app.job(each).record.task for each in found(app, "inv-1")]
    assert ["orders.mail"] == [app.job(each).record.task for each in found(app, "inv-2")]


def test_a_created_cron_makes_jobs_with_tags(app: App):
    """The arguments of a schedule that was created at run time are those of a task."""

    @app.task(search=["tenant"])
    def report(context: Context, tenant: str) -> None:
        """Do nothing."""

    @app.task
    def plain(tenant: str) -> None:
        """Do nothing."""

    app.schedules.create("acme", "0 * * * *", report, arguments={"tenant": "acme"})
    app.schedules.create("other", "0 * * * *", plain, arguments={"tenant": "other"})
    drain(app, within="2h")

    assert 3 == len(found(app, "acme")) == len(app.jobs.select(Filter(task="report")))
    assert [] == found(app, "other")


def test_tags_stay_with_a_job_that_starts_again_or_moves(app: App, pay: Any):
    """A redrive, a move to another queue and a new policy keep what a job is found by; a deletion removes it."""
    job = pay.enqueue(Order("inv-1"))
    drain(app)
    app.jobs.redrive(Filter(tag="inv-1"), queue="slow")
    app.jobs.repolicy(Filter(tag="inv-1"))
    assert [job.id] == found(app, "inv-1")
    drain(app)
    app.jobs.delete(Filter(tag="inv-1"))
    assert [] == found(app, "inv-1")


def test_jobs_from_before_the_declaration_are_found_among_the_newest(app: App):
    """They have no tag; a search for the value of an argument reads them."""

    @app.task
    def pay(invoice: str) -> None:
        """Do nothing."""

    job = pay.enqueue("inv-1")

    assert ((), [job.id]) == (job.tags, [each.id for each in app.jobs.select(Filter(args="inv-1"))])


def test_a_debounced_job_is_found_by_its_latest_arguments(app: App):
    """The values of the calls before are not its arguments any more."""

    @app.task(search=["invoice"])
    def pay(invoice: str) -> None:
        """Do nothing."""

    calls = pay.debounce("k", quiet="1s", at_most="1m")
    job = calls.enqueue("inv-1")
    calls.enqueue("inv-2")

    assert ("inv-2",) == job.tags


def test_a_collection_declares_fields(app: App):
    """Tasks of a collection have theirs in the app that includes it."""
    tasks = Tasks()

    @tasks.task(search=["invoice"])
    def pay(invoice: str) -> None:
        """Do nothing."""

    app.include(tasks)

    assert ("inv-1",) == pay.enqueue("inv-1").tags


def test_tasks_without_fields_write_no_tag(app: App):
    """Their enqueue is the statement without tags."""

    @app.task
    def pay(invoice: str) -> None:
        """Do nothing."""

    assert () == pay.enqueue("inv-1").tags
    assert None is pay.new_job(b"{}").search


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["order.password"], "dashboards redact 'password'"),
        (["api_key"], "dashboards redact 'api_key'"),
        (["odrer"], "search='odrer': its arguments have no 'odrer'; is 'order' meant"),
        (["order.lines.sku", "order.line"], "no 'line'; is 'lines' meant"),
        (["order.lines.sku.deeper"], "no 'deeper'; there are: none"),
        (["context"], "no 'context'; there are: anything, order"),
        (["order."], "no ''"),
    ],
)
def test_fields_that_cannot_be_searched_are_refused(app: App, fields: list[str], message: str):
    """Secret ones, because a tag would show them, and those that no argument has."""
    with pytest.raises(TaskDefinitionError, match=message.replace("(", r"\(")):

        @app.task(search=fields)
        def pay(context: Context, order: Order, anything: Any = None) -> None:
            """Do nothing."""


@pytest.mark.parametrize("fields", ["order", [3], [""]])
def test_a_list_of_names_is_demanded(app: App, fields: Any):
    """A single text would be one field for each letter."""
    with pytest.raises(ConfigurationError, match="search"):
        app.task(search=fields)(lambda order: None)


@pytest.mark.parametrize("hint", ["Any", "dict[str, Any]", "dict[str, str]", "Order | None", "list[Order]"])
def test_open_types_may_have_any_member(app: App, hint: Any):
    """Fields of what is not described are not checked, and optional values and lists are looked into."""

    def pay(order: Any) -> None:
        """Do nothing."""

    pay.__annotations__["order"] = hint
    assert app.task(search=["order.invoice"])(pay).defaults.search == ("order.invoice",)
