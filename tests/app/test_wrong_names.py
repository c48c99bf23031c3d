"""Words that redrive does not have: options, attributes and decorators, each answered with what is right."""

from __future__ import annotations

import asyncio
import copy
import functools
import math
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import redrive
from redrive import App, Context, Filter, Flow, Policy, Rule, Tasks
from redrive.errors import RedriveError, TaskDefinitionError
from redrive.retrying.limiter import Limiter
from redrive.seams import spelled, without
from redrive.testing import VirtualClock, drain
from redrive.vocabulary import ATTRIBUTES, advice


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with virtual time."""
    made = App("memory://", clock=VirtualClock())
    yield made
    made.close()


def charge(order: int = 0) -> None:
    """Do nothing."""


def work(order: int = 0) -> None:
    """Do nothing."""


def daily() -> None:
    """Do nothing."""


async def checkout(flow: Flow) -> None:
    """Do nothing."""


def text_of(call: Callable[[], object]) -> str:
    """Return the error of a call: its class and its text."""
    try:
        call()
    except (RedriveError, TypeError, AttributeError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


# ------------------------------------------------------------------------------------------------------------- options

OPTIONS: list[tuple[Callable[[App], object], str]] = [
    (lambda app: app.task(max_retries=3), '@app.task() has no option max_retries=: write retry="5 1s 10m"'),  # type: ignore[call-overload]
    (lambda app: app.task(retires=3), '@app.task() has no option retires=: write retry="5 1s 10m"'),  # type: ignore[call-overload]
    (lambda app: app.task(priorty=3), "@app.task() has no option priorty=: did you mean priority=?"),  # type: ignore[call-overload]
    (
        lambda app: app.task(bind=True),  # type: ignore[call-overload]
        "@app.task() has no option bind=: a first parameter with the annotation redrive.Context receives the attempt",
    ),
    (
        lambda app: app.task(autoretry_for=(OSError,)),  # type: ignore[call-overload]
        (
            "@app.task() has no option autoretry_for=: it is an option of a policy: "
            "@app.task(retry=Policy(on=ConnectionError))"
        ),
    ),
    (lambda app: app.task(retry_backoff=True), '@app.task() has no option retry_backoff=: write retry="5 1s 10m"'),  # type: ignore[call-overload]
    (lambda app: app.task(soft_time_limit=9), '@app.task() has no option soft_time_limit=: write soft_timeout="9m"'),  # type: ignore[call-overload]
    (
        lambda app: app.task(countdown=9),  # type: ignore[call-overload]
        '@app.task() has no option countdown=: it is an option of a job: task.options(delay="10s").enqueue(...)',
    ),
    (
        lambda app: app.task(serializer="json"),  # type: ignore[call-overload]
        (
            "@app.task() has no option serializer=: its options are retry=, queue=, timeout=, name=, priority=, "
            "idempotent=, soft_timeout=, keep_for=, aka=, executor=, search="
        ),
    ),
    (lambda app: Tasks().task(tries=3), '@app.task() has no option tries=: write retry="5 1s 10m"'),  # type: ignore[call-overload]
    (lambda app: app.workflow(max_tries=3), '@app.workflow() has no option max_tries=: write retry="5 1s 10m"'),  # type: ignore[call-arg]
    (lambda app: app.cron("@daily", queue_name="a"), '@app.cron() has no option queue_name=: write queue="mail"'),  # type: ignore[call-arg]
    (
        lambda app: app.refresh("Refresh every 2 hours", max_retries=3),  # type: ignore[call-arg]
        (
            "@app.refresh() has no option max_retries=: the retries of a refresh stand in its policy: "
            '"Refresh every 2 hours; retry every 5 minutes"'
        ),
    ),
    (lambda app: app.machine("m", max_retries=3), 'app.machine() has no option max_retries=: write retry="5 1s 10m"'),  # type: ignore[call-arg]
    (
        lambda app: app.topic("t", int, retry="5 1s"),  # type: ignore[call-overload]
        'app.topic() has no option retry=: @topic.subscribe("mail", retry="5 1s 10m") has the retries',
    ),
    (
        lambda app: app.step(retry="5 1s"),  # type: ignore[call-overload]
        (
            "@app.step() has no option retry=: the retries of a step stand where it is called: "
            'flow.step(function, ..., retry="5 1s 10m")'
        ),
    ),
    (lambda app: app.queue("mail", retries=3), 'app.queue() has no option retries=: write retry="5 1s 10m"'),  # type: ignore[call-arg]
    (lambda app: App("memory://", result_ttl=3), 'App() has no option result_ttl=: write keep_for="7d"'),  # type: ignore[call-arg]
    (
        lambda app: app.topic("t", int).subscribe("a", max_age=3),  # type: ignore[call-arg]
        '@topic.subscribe() has no option max_age=: it is an option of a job: task.options(expires="1h").enqueue(...)',
    ),
    (lambda app: app.machine("m").state(retries=3), '@machine.state() has no option retries=: write retry="5 1s 10m"'),  # type: ignore[call-arg]
    (lambda app: app.machine("m").start(retries=3), '@machine.start() has no option retries=: write retry="5 1s 10m"'),
    (lambda app: app.task(charge).options(countdown=3), 'options() has no option countdown=: write delay="10s"'),  # type: ignore[call-arg]
    (
        lambda app: app.task(charge).options(eta=3),  # type: ignore[call-arg]
        "options() has no option eta=: write at=datetime(2027, 1, 1, tzinfo=UTC)",
    ),
    (lambda app: app.workflow()(checkout).options(dealy=3), "options() has no option dealy=: did you mean delay=?"),
    (lambda app: redrive.retry("3 1s", max_retries=3), "@redrive.retry() has no option max_retries=: write attempts=6"),  # type: ignore[call-arg]
    (
        lambda app: redrive.retry(exceptions=OSError),  # type: ignore[call-arg]
        "@redrive.retry() has no option exceptions=: write on=ConnectionError",
    ),
    (lambda app: Policy(max_retries=3), "Policy() has no option max_retries=: write attempts=6"),  # type: ignore[call-arg]
    (lambda app: Policy().with_(tries=3), "Policy() has no option tries=: write attempts=6"),
    (lambda app: Rule(OSError, tries=3), "Rule() has no option tries=: write attempts=6"),  # type: ignore[call-arg]
    (
        lambda app: redrive.retry("3 1s", timeout="5s"),  # type: ignore[call-arg]
        (
            '@redrive.retry() has no option timeout=: write attempt_timeout="10s" for one attempt, or deadline="10m" '
            "for all of them"
        ),
    ),
    (lambda app: app.machine("m", timeout="5s"), 'app.machine() has no option timeout=: write attempt_timeout="10s"'),  # type: ignore[call-arg]
    (
        lambda app: app.queue("mail").limit(concurency=3),  # type: ignore[call-arg]
        "queue.limit() has no option concurency=: did you mean concurrency=?",
    ),
    (
        lambda app: app.jobs.select(limit=3),  # type: ignore[call-arg]
        "app.jobs.select() has no option limit=: conditions are those of a filter: app.jobs.select(Filter(...))",
    ),
    (
        lambda app: asyncio.run(app.jobs.acancel(Filter(all=True), wy="late")),  # type: ignore[call-arg]
        "app.jobs.cancel() has no option wy=: did you mean why=?",
    ),
    (lambda app: Filter(taks="charge"), "Filter() has no option taks=: did you mean task=?"),  # type: ignore[call-arg]
    (lambda app: Filter(*range(99)), "Extra positional arguments provided"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), OPTIONS, ids=range(len(OPTIONS)))
def test_an_unknown_option_is_answered_with_the_right_one(app: App, call: Callable[[App], object], message: str):
    """The error names what the user wrote, and the option of redrive for what it means."""
    assert f"TypeError: {message}" == text_of(lambda: call(app))


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"countdown": 3}, '; it is an option of a job: charge.options(delay="10s").enqueue(...)'),
        ({"queue": "mail"}, '; it is an option of a job: charge.options(queue="mail").enqueue(...)'),
        ({"time_limit": 3}, '; it is an option of @app.task(timeout="10m")'),
        ({"colour": 3}, ""),
    ],
)
def test_options_among_the_arguments_are_recognised(app: App, options: dict[str, Any], end: str):
    """An argument that the function does not have may be an option, which stands elsewhere."""
    task = app.task(charge)
    (name,) = options
    message = f"charge: argument {name!r} is unknown; parameters: order{end}"

    assert f"PayloadError: {message}" == text_of(lambda: task.enqueue(1, **options))
    assert f"PayloadError: {message}" == text_of(lambda: asyncio.run(task.aenqueue(1, **options)))
    assert () == app.jobs.select()


def test_an_argument_of_a_wrong_type_has_no_advice(app: App):
    """Only names that the function does not have are looked up."""
    task = app.task(charge)

    assert text_of(lambda: task.enqueue("a")).endswith("Expected `int`, got `str` - at `$.order`")  # type: ignore[arg-type]


def test_an_error_of_the_function_itself_passes_as_it_is():
    """Only the binding of the arguments is explained."""

    @spelled("@made")
    def made(*, number: int) -> int:
        return number + 1

    assert 3 == made(number=2)
    assert 'TypeError: can only concatenate str (not "int") to str' == text_of(lambda: made(number="a"))  # type: ignore[arg-type]
    assert "TypeError: @made() missing 1 required keyword-only argument: 'number'" == text_of(made)


def test_every_word_has_one_meaning():
    """No word of another library is listed twice for one kind of object."""
    for words in ATTRIBUTES.values():
        names = [name for each in words for name in each.split()]
        assert sorted(set(names)) == sorted(names)
    assert advice("colour") is None


ENDLESS = (
    "1,000,000,001 attempts would go on for 114,077 years, and the longest wait is 50: give fewer, shorter delays, or"
)


def test_a_policy_that_outlives_its_users_is_refused(app: App):
    """Tasks, jobs and workflows refuse it; a limit of time allows any number of attempts."""
    forever = "1000000000 1s"
    task = app.task(charge)

    assert f"PolicyValueError: task {__name__}.work: {ENDLESS} a deadline" == text_of(
        lambda: app.task(retry=forever)(work)
    )
    assert text_of(lambda: task.options(retry=forever)).endswith(f"task charge: {ENDLESS} a deadline")
    assert ENDLESS in text_of(lambda: app.workflow(retry=forever)(checkout))
    app.task(retry=Policy(attempts=10**9, deadline="30d"), name="a")(work)
    app.workflow(retry=forever, deadline="30d", name="bounded")(checkout)
    app.task(retry=Policy(attempts=None, deadline="30d"), name="b")(work)
    app.task(retry=Policy(attempts=3) & Policy(attempts=5), name="c")(work)


# ---------------------------------------------------------------------------------------------------------- decorators

BARE: list[tuple[Callable[[App], Any], str]] = [
    (
        lambda app: app.workflow,
        "@app.workflow needs its parentheses, and got the function charge: write @app.workflow()",
    ),
    (
        lambda app: app.cron,
        '@app.cron needs its parentheses, and got the function charge: write @app.cron("*/5 * * * *")',
    ),
    (
        lambda app: app.refresh,
        '@app.refresh needs its parentheses, and got the function charge: write @app.refresh("Refresh every 2 hours")',
    ),
    (
        lambda app: app.machine,
        (
            'app.machine needs its parentheses, and got the function charge: write orders = app.machine("orders"), and '
            "@orders.state(...) above a function"
        ),
    ),
    (
        lambda app: app.topic,
        (
            'app.topic needs its parentheses, and got the function charge: write orders = app.topic("orders", Order), '
            'and @orders.subscribe("mail") above a function'
        ),
    ),
    (
        lambda app: app.queue,
        (
            'app.queue needs its parentheses, and got the function charge: write app.queue("mail", concurrency=5), and '
            '@app.task(queue="mail") above a function'
        ),
    ),
    (
        lambda app: app.topic("t", int).subscribe,
        '@topic.subscribe needs its parentheses, and got the function charge: write @topic.subscribe("mail")',
    ),
    (
        lambda app: app.topic("t", int, version=2).upcast,
        "@topic.upcast needs its parentheses, and got the function charge: write @topic.upcast(1)",
    ),
    (
        lambda app: app.machine("m").state,
        "@machine.state needs its parentheses, and got the function charge: write @machine.state(after=[...])",
    ),
]


@pytest.mark.parametrize(("decorator", "message"), BARE, ids=range(len(BARE)))
def test_a_decorator_without_its_parentheses_is_refused(app: App, decorator: Callable[[App], Any], message: str):
    """The function would be taken for a name or a pattern; the error has the right form."""
    assert f"TaskDefinitionError: {message}" == text_of(lambda: decorator(app)(charge))


EMPTY: list[tuple[Callable[[App], Any], str]] = [
    (
        lambda app: app.cron(),
        "@app.cron() missing 1 required positional argument: 'pattern'; write @app.cron(\"*/5 * * * *\")",
    ),  # type: ignore[call-arg]
    (lambda app: app.on_start(), "@app.on_start stands above a function, without parentheses"),  # type: ignore[call-arg]
    (lambda app: app.on_stop(), "@app.on_stop stands above a function, without parentheses"),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("call", "message"), EMPTY, ids=range(len(EMPTY)))
def test_a_decorator_with_empty_parentheses_is_refused(app: App, call: Callable[[App], Any], message: str):
    """The error has the right form."""
    assert f"TypeError: {message}" == text_of(lambda: call(app))


# Each makes a task of a function, and says where the retries of its jobs are written.
TASKS: list[tuple[Callable[[App], Any], str]] = [
    (lambda app: app.task(charge), 'the retries of its jobs are @app.task(retry="5 1s 10m")'),
    (lambda app: app.workflow()(checkout), 'the retries of its jobs are @app.workflow(retry="5 1s 10m")'),
    (lambda app: app.cron("@daily")(daily), 'the retries of its jobs are @app.cron(..., retry="5 1s 10m")'),
    (
        lambda app: app.refresh("Refresh every 2 hours")(charge),
        'the retries of its jobs are @app.refresh("Refresh every 2 hours; retry every 5 minutes")',
    ),
    (
        lambda app: app.machine("m").start(charge),
        'the retries of its jobs are @machine.state(retry="5 1s 10m")',
    ),
    (
        lambda app: app.topic("t", int).subscribe("mail")(charge),
        'the retries of its jobs are @topic.subscribe("mail", retry="5 1s 10m")',
    ),
    (
        lambda app: app.named("charge"),
        "write @redrive.retry below the decorator that makes it, directly above the def",
    ),
]


@pytest.mark.parametrize(("made", "right"), TASKS, ids=range(len(TASKS)))
def test_a_retry_above_a_task_is_refused(app: App, made: Callable[[App], Any], right: str):
    """It would return a plain function, without the methods of the task; the error has the place of the policy."""
    task = made(app)
    message = f"@redrive.retry cannot decorate {task!r}, whose enqueue() and other methods would be lost: {right}"

    assert f"TypeError: {message}" == text_of(lambda: redrive.retry("3 1s", on=OSError)(task))


def test_a_limiter_above_a_task_is_refused_and_below_it_is_not(app: App):
    """Any decorator for plain functions stands directly above the function."""
    limiter = Limiter(concurrency=1)
    task = app.task(limiter(charge))

    assert text_of(lambda: limiter(task)).endswith(
        "would be lost: write @limiter below the decorator that makes it, directly above the def"
    )
    task.enqueue()
    assert 1 == drain(app).attempts


def test_a_function_becomes_one_task(app: App):
    """A second decorator of an app finds the task in place of the function."""
    task = app.task(charge)

    assert "TaskDefinitionError: 'charge' is a task already, and one function is one task: " == text_of(
        lambda: app.task(name="again")(task)
    ).removesuffix("make another function for the task")
    assert "'charge' is a task already" in text_of(lambda: app.cron("@daily", name="again")(task))
    assert "'charge' is a task already" in text_of(lambda: app.machine("m").state(start=True)(task))
    assert "'charge' is a task already" in text_of(lambda: app.topic("t", int).subscribe("a")(task))


# ----------------------------------------------------------------------------------------------------------- functions


class Till:
    """An object with a method."""

    def open(self) -> None:
        """Do nothing."""


C_CODE = (
    "is a function in C, and its arguments have no names by which a job could store them: write a def that calls it"
)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (print, f"task 'print' {C_CODE}"),
        (max, f"task 'max' {C_CODE}"),
        (math.floor, f"task 'floor' {C_CODE}"),
        (
            lambda: None,
            f"a lambda in {__name__} has no name by which a worker could find it: write a def, or give name=",
        ),
        (
            Till,
            (
                f"{Till!r} is no function; a task is made by @app.task or @app.task(retry=..., queue=...): write a def "
                "that calls it, and decorate that"
            ),
        ),
    ],
    ids=["builtin", "builtin without a signature", "function of a module", "lambda", "class"],
)
def test_a_function_that_a_worker_cannot_find_is_refused(app: App, function: Any, message: str):
    """Builtins, lambdas and other objects are answered with what to write."""
    assert f"TaskDefinitionError: {message}" == text_of(lambda: app.task(function))
    assert {} == app.tasks


def test_a_lambda_with_a_name_is_a_task(app: App):
    """A name makes it one that workers find; a state of a machine without one is refused."""
    assert "<task send>" == repr(app.task(name="send")(lambda: None))
    with pytest.raises(TaskDefinitionError, match="a lambda in .* has no name"):
        app.machine("m").state(start=True)(lambda event: None)
    with pytest.raises(TaskDefinitionError, match="a lambda in .* has no name"):
        app.cron("@daily")(lambda: None)


@pytest.mark.parametrize(
    ("value", "label"),
    [(print, "print"), (Till().open, "Till.open"), (functools.partial(print), "partial")],
    ids=["builtin", "method", "partial"],
)
def test_a_function_as_an_argument_is_refused(app: App, value: Any, label: str):
    """The error names the argument, and what to do instead."""
    task = app.task(charge)
    how = f"{label} can be called, and cannot be written as JSON: pass its name, or make it a task of its own"

    assert f"PayloadError: charge: argument 'order': {how}" == text_of(lambda: task.enqueue(value))
    assert f"PayloadError: other: argument 'order': {how}" == text_of(lambda: app.named("other").enqueue(order=value))


def test_a_batch_takes_a_task_with_its_arguments(app: App):
    """A job was made outside of the batch, and a call of the task has run the function."""
    batch, task = app.batch(), app.task(charge)
    expected = "ConfigurationError: a batch takes a task and its arguments, as in batch.add(charge, 7), got"

    assert f"{expected} <job 1>; <job 1> is enqueued already, outside of the batch" == text_of(
        lambda: batch.add(task.enqueue(1))  # type: ignore[arg-type]
    )
    assert f"{expected} None" == text_of(lambda: batch.add_many(task(1), [1]))  # type: ignore[arg-type,func-returns-value]
    assert f"{expected} None" == text_of(lambda: batch.enqueue(task(1)))  # type: ignore[arg-type,func-returns-value]


def test_a_stop_that_is_no_event_is_answered_with_the_limits_of_a_policy():
    """Tenacity's ``stop=`` is a limit."""
    assert (
        "PolicyValueError: stop=3: give a threading.Event, also in async code, or None; a limit is attempts=6 or "
        'deadline="10m"'
    ) == text_of(lambda: redrive.retry("3 1s", on=OSError, stop=3))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("delay", "charge.enqueue(...), or await charge.aenqueue(...)"),
        ("send", "charge.enqueue(...), or await charge.aenqueue(...)"),
        ("apply_async", 'charge.options(delay="10s").enqueue(...)'),
        ("send_with_options", 'charge.options(delay="10s").enqueue(...)'),
        ("schedule", 'charge.options(delay="10s").enqueue(...)'),
        ("max_retries", "charge.policy.attempts"),
    ],
)
def test_the_methods_of_other_libraries_are_answered_with_ours(app: App, name: str, right: str):
    """No alias works: the error has the call of redrive."""
    message = f"AttributeError: 'Task' object has no attribute '{name}'; in redrive: {right}"

    assert message == text_of(lambda: getattr(app.task(charge), name))


def test_workflows_jobs_runs_apps_and_contexts_answer_too(app: App):
    """Each kind of object has its own words."""
    workflow = app.workflow()(checkout)
    job, run = app.task(charge).enqueue(), workflow.start(id="k")
    result = 'result(timeout="10s"), or await'

    assert text_of(lambda: workflow.delay).endswith("; in redrive: checkout.start(...), or await checkout.astart(...)")
    assert text_of(lambda: job.get).endswith(f'; in redrive: job.{result} job.aresult(timeout="10s")')  # type: ignore[attr-defined]
    assert text_of(lambda: run.get).endswith(f'; in redrive: run.{result} run.aresult(timeout="10s")')  # type: ignore[attr-defined]
    assert text_of(lambda: app.AsyncResult).endswith(
        "'App' object has no attribute 'AsyncResult'; in redrive: app.job(id)"
    )  # type: ignore[attr-defined]
    assert (
        "AttributeError: 'Tasks' object has no attribute 'actor_class'; in redrive: @app.task above a function"
        == text_of(lambda: Tasks().actor_class)
    )


def test_the_context_of_a_handler_answers(app: App):
    """The error of the attempt has the word of redrive."""

    @app.task
    def work(ctx: Context) -> None:
        ctx.update_state("half")  # type: ignore[attr-defined]

    job = work.enqueue()
    drain(app)

    text = "'Context' object has no attribute 'update_state'; in redrive: ctx.heartbeat(details)"
    assert [text] == [each.error for each in job.attempts]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            "flow.execute_activity",
            "'Flow' object has no attribute 'execute_activity'; in redrive: flow.step(function, ...)",
        ),
        ("flow.anything", "'Flow' object has no attribute 'anything'"),
        (
            "flow.step(charge, max_attempts=3)",
            (
                "charge: argument 'max_attempts' is unknown; parameters: order; of flow.step() itself: write "
                'retry="5 1s 10m"'
            ),
        ),
        (
            "flow.step(charge, timout=3)",
            "charge: argument 'timout' is unknown; parameters: order; of flow.step() itself: did you mean timeout=?",
        ),
        ("flow.step(charge, colour=3)", "charge: argument 'colour' is unknown; parameters: order"),
        ("flow.step(charge, 'a')", "charge: the arguments do not match the annotations: Expected `int`, got `str`"),
    ],
)
def test_a_flow_answers(app: App, call: str, text: str):
    """The error of the run has the word of redrive; options among the arguments of a step are recognised."""

    @app.workflow()
    async def order(flow: Flow) -> None:
        eval(call, {"flow": flow, "charge": charge})  # noqa: S307 - of this file

    run = order.start(id="a")
    drain(app)

    (attempt,) = run.job.attempts
    assert attempt.error is not None
    assert text == attempt.error.partition(" - at")[0]


def test_the_words_of_machines_and_of_an_app_answer(app: App):
    """They are those of other libraries, for what redrive has."""
    machine = app.machine("m")

    assert text_of(lambda: machine.trigger).endswith(  # type: ignore[attr-defined]
        'in redrive: machine.send("key", Event(...)), with an instance of the class'
    )
    assert text_of(lambda: app.middleware).endswith(  # type: ignore[attr-defined]
        "in redrive: @app.around above a def with one yield, where the handler runs"
    )
    assert text_of(lambda: app.beat).endswith('in redrive: @app.cron("*/5 * * * *") above a function')  # type: ignore[attr-defined]
    assert text_of(lambda: app.task(charge).enqueue().delete).endswith(  # type: ignore[attr-defined]
        "in redrive: app.jobs.delete(redrive.Filter(ids=[job.id])); job.cancel() stops it, and keeps its row"
    )


NAMES = [
    ("task", '@app.task above a function, of app = redrive.App("sqlite:///app.db")'),
    ("Worker", "the command redrive worker module:app; in a program, redrive.runtime.worker.Worker"),
    ("stop_after_attempt", "attempts=6 of @redrive.retry(...), where None is no limit"),
    ("Celery", 'app = redrive.App("sqlite:///app.db")'),
]


@pytest.mark.parametrize(("name", "right"), NAMES)
def test_names_of_other_libraries_are_answered_by_the_package(name: str, right: str):
    """An import and a look-up have the same text, and the name does not seem to exist."""
    for call, start in (
        (lambda: getattr(redrive, name), f"AttributeError: module 'redrive' has no attribute {name!r}"),
        (lambda: exec(f"from redrive import {name}"), f"ImportError: cannot import name {name!r} from 'redrive'"),  # noqa: S102 - of this file
    ):
        assert f"{start}; in redrive: {right}" == text_of(call)
    assert not hasattr(redrive, name)
    assert getattr(redrive, name, None) is None


def test_an_unknown_name_of_the_package_has_the_error_of_python():
    """Python adds the nearest name of a look-up; the error of an import is its own."""
    with pytest.raises(AttributeError, match=r"^module 'redrive' has no attribute 'Tsk'$") as error:
        redrive.Tsk  # type: ignore[attr-defined]  # noqa: B018 - the look-up is what is tested
    assert (redrive, "Tsk") == (error.value.obj, error.value.name)
    with pytest.raises(ImportError, match=r"^cannot import name 'Tsk' from 'redrive' \("):
        exec("from redrive import Tsk")  # noqa: S102 - of this file


def test_the_words_of_the_package_hide_none_of_its_names():
    """None of them is a public name or a module."""
    words = {word for each in ATTRIBUTES["redrive"] for word in each.split()}
    modules = {each.name for each in pkgutil.iter_modules(redrive.__path__)}

    assert set() == words & (set(dir(redrive)) | modules)


def test_other_attributes_have_the_error_of_python(app: App):
    """An unknown name has no advice; Python itself adds the one that is nearly the same when it prints the error."""
    with pytest.raises(AttributeError, match=r"^'App' object has no attribute 'workfow'$") as error:
        app.workfow  # type: ignore[attr-defined]  # noqa: B018 - the look-up is what is tested

    assert (app, "workfow") == (error.value.obj, error.value.name)
    assert not hasattr(app, "_anything")


def test_a_task_can_be_copied_and_tested_for_attributes(app: App):
    """Look-ups of the interpreter on an object without its attributes end."""
    task = app.task(charge)

    assert "charge" == copy.copy(task).name
    assert not hasattr(type(task).__new__(type(task)), "delay")
    with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
        pickle.dumps(task)


def test_the_error_of_a_property_is_kept():
    """A property that raises AttributeError is not taken for a missing one."""

    class Broken:
        __getattr__ = without("app")

        @property
        def store(self) -> object:
            return object().nothing  # type: ignore[attr-defined]

    assert "AttributeError: 'object' object has no attribute 'nothing'" == text_of(lambda: Broken().store)
