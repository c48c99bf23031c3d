"""The functions of an app that see each enqueue."""

from __future__ import annotations

import contextvars
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, EnqueueRequest, Filter, Flow
from redrive.errors import ConfigurationError, TaskDefinitionError
from redrive.testing import drain
from tests.runtime.runs.conftest import app as app_of_a_store
from tests.runtime.runs.conftest import every_store

app = app_of_a_store

TENANT: contextvars.ContextVar[str | None] = contextvars.ContextVar("tests_tenant", default=None)


def tagging(app: App) -> list[EnqueueRequest]:
    """Tag each job with the tenant of the caller, and return what was enqueued."""
    seen: list[EnqueueRequest] = []

    @app.on_enqueue
    def tenant(new: EnqueueRequest) -> str | None:
        seen.append(new)
        found = TENANT.get()
        return None if found is None else f"tenant:{found}"

    return seen


def tagged(app: App, tag: str) -> int:
    """Return how many jobs have a tag."""
    return len(app.jobs.select(Filter(tag=tag)))


@every_store
def test_each_job_gets_the_tags(app: App):
    """Single jobs, each one of many, debounced ones and runs are seen, with the context variables of the caller."""
    seen = tagging(app)

    @app.task(name="mail", queue="post", priority=3)
    def mail(number: int, text: str = "") -> None:
        """Do nothing."""

    @app.workflow(name="order")
    async def order(flow: Flow, number: int) -> None:
        """Do nothing."""

    token = TENANT.set("north")
    mail.enqueue(1, text="a")
    mail.options(tags=["own"], partition="p", key="k").enqueue(2)
    mail.enqueue_many([(3, "b"), (4, "c")])
    order.start(5)
    mail.debounce("d", quiet="1m", at_most="1h").enqueue(5)
    TENANT.reset(token)
    mail.enqueue(6)
    first, second = seen[:2]

    assert (6, 1) == (tagged(app, "tenant:north"), tagged(app, "own"))
    assert EnqueueRequest("mail", "post", 3, (), b'{"number":1,"text":"a"}') == first
    assert ({"number": 1, "text": "a"}, ("own",), "p", "k") == (
        first.arguments,
        second.tags,
        second.partition,
        second.key,
    )
    assert [1, 2, 3, 4, 5, 5, 6] == [each.arguments["number"] for each in seen]


@every_store
def test_jobs_of_handlers_and_child_runs_are_seen(app: App):
    """A child run is seen once, when it begins, and not again by a replay."""
    seen = tagging(app)

    @app.task(name="mail")
    def mail(number: int) -> None:
        """Do nothing."""

    @app.task(name="outer")
    def outer() -> None:
        mail.enqueue(1)

    @app.workflow(name="child")
    async def child(flow: Flow) -> None:
        await flow.sleep("1h")

    @app.workflow(name="parent")
    async def parent(flow: Flow) -> None:
        await flow.call(child)
        await flow.sleep("1h")

    outer.enqueue()
    parent.start()
    drain(app)

    assert ["outer", "parent", "mail", "child"] == [each.task for each in seen] or [
        "outer",
        "parent",
        "child",
        "mail",
    ] == [each.task for each in seen]


def test_a_job_in_a_transaction_of_the_caller_is_seen(tmp_path: Path):
    """The tags are written by the connection that is given."""
    app = App(f"sqlite:///{tmp_path}/app.db").open()
    tagging(app)
    token = TENANT.set("north")

    @app.task(name="mail")
    def mail(number: int) -> None:
        """Do nothing."""

    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    connection.execute("BEGIN")
    mail.enqueue(1, using=connection)
    mail.enqueue_many([2], using=connection)
    connection.execute("COMMIT")
    connection.close()
    TENANT.reset(token)

    assert 2 == tagged(app, "tenant:north")
    app.close()


@every_store
def test_what_it_raises_refuses_the_enqueue(app: App):
    """Nothing is stored, also of many jobs."""

    @app.on_enqueue
    def limit(new: EnqueueRequest) -> None:
        if new.arguments["number"] > 1:
            raise PermissionError("too many")

    @app.task(name="mail")
    def mail(number: int) -> None:
        """Do nothing."""

    for call in (lambda: mail.enqueue(2), lambda: mail.enqueue_many([1, 2])):
        with pytest.raises(PermissionError):
            call()

    assert () == app.jobs.select()


def test_later_functions_see_the_tags_of_earlier_ones(app: App):
    """They run in the order of the code; each tag is stored once."""
    seen: list[tuple[str, ...]] = []
    app.on_enqueue(lambda new: ["a", "b"])

    @app.on_enqueue
    def second(new: EnqueueRequest) -> tuple[str, ...]:
        seen.append(new.tags)
        return ("b",)

    job = app.task(name="mail")(lambda: None).enqueue()

    assert ([("a", "b")], {"a", "b"}) == (seen, set(job.tags))


def test_jobs_without_a_caller_are_not_seen(app: App):
    """Those of crons and refreshes are made by redrive itself."""
    seen = tagging(app)

    @app.cron("* * * * *", name="often")
    def often() -> None:
        """Do nothing."""

    @app.refresh("every minute", name="fresh")
    def fresh() -> None:
        """Do nothing."""

    fresh.track("a")
    drain(app, within="3m")

    assert [] == seen
    assert app.jobs.select()


def test_a_tag_that_is_none_is_refused(app: App):
    """The error is that of ``options(tags=...)``."""
    app.on_enqueue(lambda new: [""])
    mail = app.task(name="mail")(lambda: None)

    with pytest.raises(ConfigurationError, match="a tag is a text"):
        mail.enqueue()


@pytest.mark.parametrize("result", [3, {"tenant": "north"}, b"north", object], ids=str)
def test_a_result_that_is_no_tags_is_refused(app: App, result: Any):
    """The keys of a dict would become tags; the error names the function and what it may return."""

    @app.on_enqueue
    def tenant(new: EnqueueRequest) -> Any:
        return result

    mail = app.task(name="mail")(lambda: None)

    with pytest.raises(
        ConfigurationError, match=r"mail: the result of .*tenant of @app.on_enqueue: tags are a text or"
    ):
        mail.enqueue()
    assert not app.jobs.select()


def test_only_a_plain_function_sees_enqueues(app: App):
    """Others are refused where they are declared."""

    async def coroutine(new: EnqueueRequest) -> None:
        """Do nothing."""

    def generator(new: EnqueueRequest) -> Iterator[None]:
        yield

    def nothing() -> None:
        """Do nothing."""

    wrong: list[tuple[Any, str]] = [
        (coroutine, "is async"),
        (generator, "yields"),
        (nothing, "takes one parameter"),
        ("tenant", "is no function"),
    ]
    for function, message in wrong:
        with pytest.raises(TaskDefinitionError, match=message):
            app.on_enqueue(function)
