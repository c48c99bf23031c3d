"""The largest arguments, results, events and signals: `App(max_payload=...)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from redrive import App, Context, Flow, Pending, SyncFlow, Tasks
from redrive.errors import ConfigurationError, PayloadError, ResultTooLarge, TaskDefinitionError
from redrive.testing import VirtualClock, drain

LIMIT = 100
BIG = "x" * LIMIT
WHY = "and the limit is 100 (App(max_payload=...)): store the content elsewhere, and pass a reference to it"
RETURN = "and the limit is 100 (App(max_payload=...)): store the content elsewhere and return a reference to it"


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with virtual time and a small limit."""
    made = App("memory://", clock=VirtualClock(), max_payload=LIMIT)
    yield made
    made.close()


def store(text: str) -> str:
    """Return the text."""
    return text


def test_the_limit_is_a_mebibyte_unless_it_is_set():
    """Twenty megabytes are refused; an app that needs more says so."""
    app = App("memory://")
    task = app.task(store)

    assert 1024 * 1024 == app.max_payload
    message = r"^store: the arguments would be 20,000,011 bytes of JSON, and the limit is 1,048,576 \(App\(max_payload="
    with pytest.raises(PayloadError, match=message):
        task.enqueue("x" * 20_000_000)
    larger = App("memory://", max_payload=30_000_000)
    assert 1 == larger.task(store).enqueue("x" * 20_000_000).id
    larger.close()
    with pytest.raises(ConfigurationError, match=r"^App\(max_payload=...\) must be a whole number above zero, got 0"):
        App("memory://", max_payload=0)
    app.close()


def enqueued(app: App) -> list[Callable[[], object]]:
    """Return the calls that store arguments."""
    task, flow = app.task(store), app.workflow()(flowing)
    return [
        lambda: task.enqueue(BIG),
        lambda: asyncio.run(task.aenqueue(BIG)),
        lambda: task.enqueue_many(["a", BIG]),
        lambda: task.options(delay="1h").enqueue(BIG),
        lambda: app.named("other").enqueue(text=BIG),
        lambda: flow.start(BIG),
        lambda: asyncio.run(flow.astart(BIG)),
        lambda: app.schedules.create("nightly", "@daily", task, arguments={"text": BIG}),
    ]


async def flowing(flow: Flow, text: str) -> None:
    """Do nothing."""


def kept(text: str) -> None:
    """Do nothing."""


@pytest.mark.parametrize("place", range(8))
def test_larger_arguments_are_refused(app: App, place: int):
    """Each call that stores arguments has the limit; nothing is stored."""
    with pytest.raises(PayloadError) as error:
        enqueued(app)[place]()

    assert f"the arguments would be 111 bytes of JSON, {WHY}" in str(error.value)
    assert () == app.jobs.select()


def test_larger_arguments_of_a_cron_are_refused_at_its_declaration(app: App):
    """They are in the code, and nothing is stored."""
    with pytest.raises(
        TaskDefinitionError, match=r"^cron 'kept': arguments=.* would be 111 bytes of JSON, and the limit"
    ):
        app.cron("@daily", arguments={"text": BIG})(kept)


def test_what_fits_exactly_is_stored(app: App):
    """The limit counts the whole JSON of the arguments."""
    assert 1 == app.task(store).enqueue("x" * (LIMIT - len('{"text":""}'))).id


def test_a_larger_result_ends_the_job(app: App):
    """Another attempt would return the same, so the job is dead, and the policy is not asked."""

    @app.task(retry="5 1s")
    def big() -> str:
        return BIG

    @app.task
    def early(ctx: Context) -> None:
        ctx.set_result(BIG)

    job, set_early = big.enqueue(), early.enqueue()
    drain(app)

    text = f"the result would be 102 bytes of JSON, {WHY}"
    assert ("dead", "BAD_RESULT", text) == (job.refresh().state, job.record.reason, job.record.error)
    assert "dead" == set_early.refresh().state


def test_a_larger_answer_from_outside_is_refused(app: App):
    """The attempt goes on waiting for one that fits."""
    tokens: list[str] = []

    @app.task
    def ask(ctx: Context) -> str | Pending:
        tokens.append(ctx.attempt_uid)
        return Pending("1h")

    job = ask.enqueue()
    drain(app, within=timedelta(seconds=1))

    with pytest.raises(PayloadError, match=r"^the result would be 102 bytes"):
        app.complete(tokens[0], BIG)
    assert app.complete(tokens[0], "ok")
    assert "ok" == job.result()


def test_larger_events_and_signals_are_refused(app: App):
    """Topics, signals of a run, and values for every run have the same limit."""
    topic, run = app.topic("orders", str), app.workflow()(flowing).start("a")

    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: topic.publish(BIG), "topic 'orders': the event"),
        (lambda: asyncio.run(topic.apublish(BIG)), "topic 'orders': the event"),
        (lambda: topic.publish_many(["a", BIG]), "event 1: topic 'orders': the event"),
        (lambda: run.signal("go", BIG), "run.signal(): the value"),
        (lambda: app.emit("paid", BIG), "app.emit(): the value"),
    ]
    for call, what in calls:
        with pytest.raises(PayloadError) as error:
            call()
        assert f"{what} would be 102 bytes of JSON, {WHY}" == str(error.value)


def length(text: str) -> int:
    """Return the number of characters."""
    return len(text)


def big_step() -> str:
    """Return too much."""
    return BIG


def test_steps_values_and_results_of_runs_have_the_limit(app: App):
    """The arguments of a step are not stored, and may be larger."""
    errors: list[str] = []

    @app.workflow()
    def body(flow: SyncFlow) -> str:
        assert LIMIT == flow.step(length, BIG)
        for call in (lambda: flow.step(big_step), lambda: flow.set("v", BIG)):
            try:
                call()
            except ResultTooLarge as error:
                errors.append(str(error))
        return BIG

    run = body.start()
    drain(app)

    assert [
        f"the result of step big_step has 102 bytes of JSON, {RETURN}",
        (
            "flow.set('v', ...): the values of the run would have 103 bytes of JSON, and the limit is 100 "
            "(App(max_payload=...)): store the content elsewhere and set a reference to it"
        ),
    ] == errors
    assert ("dead", "RESULT_TOO_LARGE") == (run.state, run.job.record.reason)


def test_tasks_of_a_collection_have_the_limit_of_their_app(app: App):
    """They have the default until they are included."""
    tasks = Tasks()
    task = tasks.task(store)
    assert 1024 * 1024 == tasks.max_payload
    app.include(tasks)

    with pytest.raises(PayloadError, match="the limit is 100 "):
        task.enqueue(BIG)
    assert LIMIT == app.max_payload
