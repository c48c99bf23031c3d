"""Wrong arguments of the public constructors and options: each is refused at the call, with one clear line."""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from redrive import App, Backoff, Filter, Policy, Rule, retry
from redrive.errors import ConfigurationError, PayloadError, RedriveError
from redrive.policy import Jitter
from redrive.retrying import BreakerSettings, TokenBudget, breaker, budget, hedge
from redrive.runtime.worker import Worker
from redrive.testing import VirtualClock

PRIORITY = "priority must be a whole number from -2147483648 to 2147483647"
TEXT = "must be a text that is not empty, has no zero byte, and is no longer than 2000 bytes"


def work(number: int = 1) -> None:
    """Do nothing."""


def test_ids_that_no_database_has_are_refused():
    """Numbers of more than 63 bits are no ids; the message does not repeat all of their digits."""
    app = App("memory://")
    for call in (app.job, app.operations.get, lambda number: asyncio.run(app.operations.aget(number))):
        with pytest.raises(ConfigurationError, match=r"must be at most 9223372036854775807, got a number of 71 bits"):
            call(2**70)
    app.close()


def items(number: int) -> Iterator[int]:
    """Yield."""
    yield number


async def aitems(number: int) -> Any:
    """Yield."""
    yield number


class MailService:
    """A class with functions of each kind."""

    def send(self, number: int) -> None:
        """Send."""

    @classmethod
    def open(cls, number: int) -> None:
        """Open."""

    @staticmethod
    def close(number: int) -> None:
        """Close."""


class OpaqueArgument:
    """A class that JSON cannot carry."""


def takes_opaque(value: OpaqueArgument) -> None:
    """Take it."""


def takes_opaques(values: list[OpaqueArgument]) -> None:
    """Take several."""


def takes_complex(value: complex) -> None:
    """Take a number that JSON does not have."""


def takes_lock(value: threading.Lock) -> None:
    """Take a lock."""


def takes_function(value: Callable[[], int]) -> None:
    """Take a function."""


def takes_iterator(values: Iterator[int]) -> None:
    """Take an iterator."""


def gives_opaque() -> OpaqueArgument:
    """Return it."""
    return OpaqueArgument()


_NUMBERS = itertools.count(1)


def numbered(_: object) -> int:
    """Return an id for a value of a table: lambdas have no name that is the same in each process."""
    return next(_NUMBERS)


def refused(call: Callable[[], object], message: str) -> None:
    """Check that a call is refused with a message."""
    with pytest.raises((RedriveError, TypeError, ValueError)) as error:
        call()

    assert message in str(error.value)
    assert "\n" not in str(error.value).split("\n    ")[0]


OPTIONS = [
    ({"queue": 5}, f"queue {TEXT}, got 5"),
    ({"queue": ""}, f"queue {TEXT}, got ''"),
    ({"queue": b"mail"}, f"queue {TEXT}, got b'mail'"),
    ({"queue": "a\0b"}, f"queue {TEXT}"),
    ({"queue": "\ud800"}, f"queue {TEXT}"),
    ({"queue": "a" * 2001}, f"queue {TEXT}, got 'aaa"),
    ({"priority": "high"}, f"{PRIORITY}, got 'high'; jobs with a smaller one run first"),
    ({"priority": 1.5}, f"{PRIORITY}, got 1.5"),
    ({"priority": True}, f"{PRIORITY}, got True"),
    ({"priority": 10**30}, PRIORITY),
    ({"priority": -(2**31) - 1}, PRIORITY),
    ({"retry": 5}, 'retry=5 is no policy: write a directive such as "5 1s" (5 retries, the first after a second)'),
    ({"retry": True}, "retry=True is no policy"),
    ({"retry": b"5 1s"}, "retry=b'5 1s' is no policy"),
    ({"retry": ValueError}, "retry=<class 'ValueError'> is no policy"),
    ({"retry": ""}, "the retry directive is empty"),
]

ONLY_JOBS = [
    ({"delay": "soon"}, "work: delay: a duration cannot contain 's' here"),
    ({"delay": -1}, "work: delay: -1 is not a duration"),
    ({"delay": True}, "work: delay: True is not a duration"),
    ({"key": ""}, f"work: key {TEXT}, got ''"),
    ({"key": 5}, f"work: key {TEXT}, got 5"),
    ({"key": "a" * 2001}, f"work: key {TEXT}, got 'aaa"),
    ({"key": lambda: None}, "work: key is a function that takes nothing, and is called with the arguments of a job"),
    (
        {"key": lambda a, b: a},
        "work: key is a function that takes a, b, and is called with the arguments of a job: number",
    ),
    ({"partition": 5}, f"work: partition {TEXT}, got 5"),
    ({"partition": lambda: "a"}, "work: partition is a function that takes nothing"),
    ({"idempotency_key": b"x"}, f"work: idempotency_key {TEXT}, got b'x'"),
    ({"key_until": "soon"}, "key_until is 'start' or 'end', not 'soon'"),
    ({"on_conflict": "drop"}, "on_conflict is 'raise' or 'existing', not 'drop'"),
]

DECLARED = [
    ({"name": 5}, f"the name of the task {__name__}.work {TEXT}, got 5"),
    ({"name": ""}, f"the name of the task {__name__}.work {TEXT}, got ''"),
    ({"idempotent": "yes"}, "task 'work': idempotent must be True or False, got 'yes'"),
    ({"soft_timeout": "x"}, "soft_timeout: a duration cannot contain 'x' here"),
    ({"keep_for": True}, "task 'work': keep_for: True is not a duration"),
    ({"keep_for": 0}, "task 'work': keep_for must be positive, got 0; 'forever' keeps all"),
]


@pytest.mark.parametrize(("options", "message"), [*OPTIONS, *ONLY_JOBS], ids=numbered)
def test_options_of_jobs_are_checked_by_options(app: App, options: dict[str, Any], message: str):
    """Wrong options of a job are refused by options(), before anything is enqueued."""
    task = app.task(work)

    refused(lambda: task.options(**options), message)


@pytest.mark.parametrize(("options", "message"), [*OPTIONS, *DECLARED], ids=numbered)
def test_options_of_tasks_are_checked_at_import(app: App, options: dict[str, Any], message: str):
    """Wrong options of a task or a cron are refused by the decorator, and the task is not registered."""
    refused(lambda: app.task(**options)(work), message)
    refused(lambda: app.cron("* * * * *", **options)(work), message)
    assert {} == app.tasks


@pytest.mark.parametrize("timeout", ["soon", -1, 0, True])
def test_timeouts_of_tasks_are_checked_at_import(app: App, timeout: Any):
    """Time limits that are no spans above zero are refused by the decorator."""
    refused(lambda: app.task(timeout=timeout)(work), f"task {__name__}.work: attempt_timeout")


def test_earlier_names_are_texts(app: App):
    """Earlier names that are no texts are refused by the decorator."""
    refused(lambda: app.task(aka=5)(work), "aka= takes earlier names of the task")


def test_a_function_for_a_key_returns_a_text(app: App):
    """Functions that return None do not silently make jobs without a key."""
    task = app.task(work).options(key=lambda number: None)

    refused(lambda: task.enqueue(1), f"work: the result of the function key= {TEXT}, got None")
    assert () == app.jobs.select()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (items, f"{__name__}.items is a generator function, and a task runs to its end and returns once"),
        (aitems, f"{__name__}.aitems is a generator function"),
        (MailService.send, "MailService.send is a method, and a job cannot store its object: make it a function"),
        (MailService().send, "MailService.send is a method"),
        (MailService.open, "MailService.open is a method"),
        (MailService.__dict__["open"], "MailService.open is a method"),
        (MailService, "is no function; a task is made by @app.task"),
        (functools.partial(work, 1), "is no function; a task is made by @app.task"),
        (5, "5 is no function"),
        (
            takes_opaque,
            "its parameter 'value' cannot be stored in a job: OpaqueArgument cannot be read from JSON: use a dataclass",
        ),
        (takes_opaques, "its parameter 'values' cannot be stored in a job: OpaqueArgument cannot be read from JSON"),
        (takes_complex, "its parameter 'value' cannot be stored in a job: complex cannot be read from JSON"),
        (takes_lock, "task 'takes_lock': its parameter 'value' cannot be stored in a job"),
        (takes_function, "task 'takes_function': its parameter 'value' cannot be stored in a job: Callable"),
        (takes_iterator, "task 'takes_iterator': its parameter 'values' cannot be stored in a job: Iterator"),
        (
            gives_opaque,
            "its return annotation -> OpaqueArgument cannot be read from JSON: OpaqueArgument cannot be read",
        ),
    ],
    ids=numbered,
)
def test_what_cannot_be_a_task_is_refused_at_import(app: App, function: Any, message: str):
    """Generators, methods and types that no job can store are refused by both forms of the decorator."""
    refused(lambda: app.task(function), message)
    refused(lambda: app.task(queue="mail")(function), message)
    assert {} == app.tasks


def test_a_static_method_is_a_function(app: App):
    """Static methods, and functions that are defined in functions, can be tasks."""

    def inner(self: int) -> int:
        return self

    assert 3 == app.task(inner)(3)
    assert "close" == app.task(MailService.close).name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (Path("shop.db"),),
            "App(): the URL of a database is a text, got PosixPath('shop.db'): write \"sqlite:///shop.db\"",
        ),
        ((None,), 'is a text such as "sqlite:///app.db", got None; is the environment variable set?'),
        (("",), "got ''; is the environment variable set?"),
        ((b"sqlite:///a.db",), "got b'sqlite:///a.db'; give a URL"),
        ((5,), "got 5; give a URL"),
        ({"heartbeat_every": "x"}, "heartbeat_every: a duration cannot contain 'x' here"),
        ({"lease_for": None}, "lease_for: None is not a duration"),
        ({"include": "shop.jobs"}, "include must be a list of texts, as in ['shop.jobs'], got 'shop.jobs'"),
        ({"include": 5}, "include must be a list of texts"),
        ({"include": [5]}, f"a name in include {TEXT}, got 5"),
        ({"clock": 5}, "App(clock=): a clock is an object such as redrive.testing.VirtualClock(), got 5"),
        ({"keep_for": "x"}, "keep_for: a duration cannot contain 'x' here"),
        ({"keep_dead_for": -1}, "keep_dead_for: -1 is not a duration"),
    ],
    ids=numbered,
)
def test_arguments_of_an_app(arguments: Any, message: str):
    """Wrong arguments of App() are refused when it is made."""
    if isinstance(arguments, dict):
        refused(lambda: App("memory://", **arguments), message)
    else:
        refused(lambda: App(*arguments), message)


QUEUE = "must be a whole number above zero, or None for no limit"
APP_CALLS: list[tuple[Callable[[App], object], str]] = [
    (lambda app: app.queue(""), f"the name of a queue {TEXT}, got ''"),
    (lambda app: app.queue(5), f"the name of a queue {TEXT}, got 5"),  # type: ignore[arg-type]
    (lambda app: app.queue("a", concurrency="5"), f"concurrency {QUEUE}, got '5'"),  # type: ignore[arg-type]
    (lambda app: app.queue("a", concurrency=True), f"concurrency {QUEUE}, got True"),
    (lambda app: app.queue("a", concurrency=0), "concurrency must be positive, got 0; to stop a queue, pause it"),
    (lambda app: app.queue("a", concurrency=2**31), "a limit of a queue is at most 2,147,483,647; None is no limit"),
    (lambda app: app.queue("a", rate=f"{2**31}/1s"), "a limit of a queue is at most 2,147,483,647"),
    (lambda app: app.queue("a", per_partition=1.5), f"per_partition {QUEUE}, got 1.5"),  # type: ignore[arg-type]
    (lambda app: app.queue("a", rate=5), "rate=5 is not a rate: write starts and a span"),  # type: ignore[arg-type]
    (lambda app: app.queue("a", ordered="yes"), "ordered must be True or False"),  # type: ignore[arg-type]
    (lambda app: app.queue("a", aging="x"), "aging: a duration cannot contain 'x' here"),
    (lambda app: app.job("7"), "the id of a job must be a whole number above zero, got '7'"),  # type: ignore[arg-type]
    (lambda app: app.job(0), "the id of a job must be a whole number above zero, got 0"),
    (lambda app: app.jobs.select("dead"), "jobs are selected by a redrive.Filter"),  # type: ignore[arg-type]
    (lambda app: app.jobs.cancel(5), "jobs are selected by a redrive.Filter"),  # type: ignore[arg-type]
    (lambda app: app.jobs.redrive(None), "jobs are selected by a redrive.Filter"),  # type: ignore[arg-type]
    (lambda app: app.jobs.repolicy(5), "jobs are selected by a redrive.Filter"),  # type: ignore[arg-type]
    (lambda app: app.cron("* * * * *", tz=5, name="work")(lambda: None), "5 is not a time zone"),  # type: ignore[arg-type]
    (lambda app: app.cron("* * * * *", tz="Mars", name="work")(lambda: None), "'Mars' is not a time zone"),
    (lambda app: app.cron("* * * * *", window="x", name="work")(lambda: None), "a duration cannot contain 'x' here"),
    (lambda app: app.cron(5), "a cron is made by @app.cron"),  # type: ignore[arg-type]
    (lambda app: app.refresh(5), "a refresh is made by @app.refresh"),  # type: ignore[arg-type]
    (lambda app: app.refresh("Refresh every hour", on_disabled=5)(work), "on_disabled, a task or its name,"),  # type: ignore[arg-type]
    (lambda app: app.refresh("Refresh every hour", priority="x")(work), PRIORITY),  # type: ignore[arg-type]
    (lambda app: app.refresh("Refresh every hour")(items), "is a generator function, and a refresh runs to its end"),
    (lambda app: app.task(work).enqueue_many(5), "enqueue_many() takes a list"),  # type: ignore[arg-type]
    (lambda app: app.task(work).call(policy=5), "work: policy=5 is no policy"),  # type: ignore[arg-type]
    (lambda app: app.task(work).debounce("a", quiet="x", at_most=1), "work: quiet: a duration cannot contain"),
    (lambda app: app.task(work).debounce("", quiet=1, at_most=2), f"work: key {TEXT}, got ''"),
    (lambda app: VirtualClock("2026"), "a clock needs an aware instant, got '2026'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), APP_CALLS, ids=numbered)
def test_arguments_of_methods_of_an_app(app: App, call: Callable[[App], object], message: str):
    """Wrong arguments of the methods of an App and its tasks are refused at the call."""
    refused(lambda: call(app), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queues": "mail"}, "queues must be a list of texts, as in ['mail'], got 'mail'"),
        ({"queues": 5}, "queues must be a list of texts"),
        ({"queues": [""]}, f"a name in queues {TEXT}, got ''"),
        ({"exclude_queues": "mail"}, "exclude_queues must be a list of texts, as in ['mail'], got 'mail'"),
        ({"max_jobs": "5"}, "a worker runs at least one job, got max_jobs='5'"),
        ({"name": 5}, "the name of a worker is a text"),
        ({"concurrency": "5"}, "a worker needs at least one slot, got concurrency='5'"),
        ({"concurrency": True}, "a worker needs at least one slot, got concurrency=True"),
        ({"shutdown_timeout": "x"}, "shutdown_timeout is a timedelta, zero or more, got 'x'"),
    ],
    ids=numbered,
)
def test_arguments_of_a_worker(app: App, options: dict[str, Any], message: str):
    """Wrong arguments of Worker() are refused when it is made."""
    refused(lambda: Worker(app, **options), message)
    refused(lambda: Worker("shop:app"), "Worker() takes the App whose jobs it runs, got 'shop:app'")  # type: ignore[arg-type]


SHORTER = "the longest must not be shorter"
NEVER = "ends a program or a task and is never retried: name other failures"


STATELESS = "has no state that calls could share: give a key, or the result of redrive.retrying."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"on": KeyboardInterrupt}, f"on: KeyboardInterrupt {NEVER}"),
        ({"on": (ValueError, SystemExit)}, f"on: SystemExit {NEVER}"),
        ({"on": "builtins.GeneratorExit"}, f"on: GeneratorExit {NEVER}"),
        ({"on": asyncio.CancelledError}, f"on: CancelledError {NEVER}"),
        ({"on": 5}, "on"),
        ({"on": ()}, "on is empty"),
        ({"on": "HTTP_600"}, "on: HTTP_600 names no status of HTTP"),
        ({"on": "HTTP_100"}, "on: HTTP_100 names no status of HTTP, which are 200 to 599, as in HTTP_404"),
        ({"on": "ValueErorr"}, "on: 'ValueErorr' is neither an exception type"),
        ({"on_result": 5}, "on_result=5 is no function"),
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": "3"}, "attempts='3'"),
        ({"deadline": 0}, "deadline=0 leaves no time"),
        ({"attempt_timeout": "x"}, "attempt_timeout: a duration cannot contain"),
        ({"backoff": "5s"}, "backoff='5s' is not a Backoff"),
        ({"jitter": "half"}, "there is no jitter 'half'"),
        ({"jitter": 5}, "jitter=5"),
        ({"rules": Rule(ValueError)}, "is no list of rules: write rules=[Rule(...)]"),
        ({"rules": 5}, "rules=5 is no list of rules"),
        ({"rules": [5]}, "rules: 5 is not a Rule"),
        ({"hints": "x"}, "hints='x'"),
        ({"max_hint": -1}, "max_hint: -1 is not a duration"),
        ({"over_deadline": "x"}, "over_deadline='x'"),
        ({"nested": "x"}, "nested='x'"),
        ({"groups": "x"}, "groups='x'"),
        ({"idempotent": "yes"}, "idempotent='yes'"),
        ({"budget": 5}, "budget=5 is no budget: give a key, or the result of redrive.retrying.budget()"),
        ({"budget": TokenBudget()}, f'budget=TokenBudget(...) {STATELESS}budget("name", TokenBudget(...))'),
        ({"breaker": 1.5}, "breaker=1.5 is no breaker"),
        ({"breaker": BreakerSettings()}, f'{STATELESS}breaker("name", BreakerSettings(...))'),
        ({"hedge": 5}, "hedge=5 is no hedge"),
    ],
    ids=numbered,
)
def test_fields_of_a_policy(fields: dict[str, Any], message: str):
    """Wrong fields are refused by Policy() and by retry(), before a function is called."""
    refused(lambda: Policy(**fields), message)
    refused(lambda: retry(**({"on": ValueError} | fields)), message)


@pytest.mark.parametrize("catch", [5, "", "a b", work])
def test_a_catch_task_is_a_name(catch: Any):
    """Catch tasks that are no names are refused by Policy()."""
    refused(lambda: Policy(catch=catch), "the catch task is named 'task' or 'module.task'")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Backoff.exponential("5s", "1s"), f"the first delay is '5s', and the longest one '1s': {SHORTER}"),
        (lambda: Backoff.linear("5s", "1s", "1s"), SHORTER),
        (lambda: Backoff.decorrelated("5s", "1s"), SHORTER),
        (lambda: Backoff.smooth("5s", "1s"), SHORTER),
        (lambda: Backoff.exponential(1, factor=0.5), "factor=0.5: a backoff grows by a finite factor of at least 1"),
        (lambda: Backoff.filling("1h", 5, factor="2"), "factor='2': a backoff grows"),
        (lambda: Backoff.filling("1h", 5, factor=-1), "factor=-1: a backoff grows"),
        (lambda: Backoff.filling("1h", 0), "attempts=0"),
        (lambda: Backoff.constant(None), "None is not a duration"),
        (lambda: Backoff.listed(5), "listed takes a list of delays, as in Backoff.listed([5]), not 5"),
        (lambda: Backoff.listed("5s"), "listed takes a list of delays"),
        (lambda: Backoff.listed([]), "a listed backoff needs at least one delay"),
        (lambda: Backoff.listed([1], end="x"), "end='x'"),
        (lambda: Backoff.named("nothing"), "no backoff function 'nothing' is registered"),
        (lambda: Backoff.register(5, len), "register(5, <built-in function len>): give a name"),
        (lambda: Backoff.register("five", 5), "register('five', 5): give a name"),
        (lambda: Backoff.constant(1).take(-1), "take(-1)"),
        (lambda: Backoff.constant(1).cap("x"), "a duration cannot contain 'x' here"),
        (lambda: Jitter("half"), "there is no jitter 'half'"),
        (lambda: Jitter.plus("x"), "'x' is no fraction"),
        (lambda: Jitter.added(-1), "-1 is not a duration"),
        (lambda: Rule(KeyboardInterrupt), f"Rule.on: KeyboardInterrupt {NEVER}"),
        (lambda: Rule(()), "Rule.on is empty"),
        (lambda: Rule(ValueError, attempts=0), "Rule.attempts=0"),
        (lambda: Rule(ValueError, backoff="5s"), "backoff='5s' is not a Backoff"),
        (lambda: Rule(lambda error: True), "a rule takes names, not a classifier"),
        (lambda: Policy().per(SystemExit), f"on: SystemExit {NEVER}"),
        (lambda: Policy().take(-1), "take(-1)"),
        (lambda: Policy().up_to("x"), "up_to: a duration cannot contain"),
        (lambda: Policy.parse(5), "a directive is text, not 5"),
        (lambda: retry(5), "retry() takes a policy or a directive, not 5"),
        (lambda: budget("shop", 5), "5 is not a budget: give a"),
        (lambda: breaker("shop", 5), "5 is not the settings of a breaker: give a BreakerSettings(...)"),
        (lambda: breaker("shop", counts=5), "counts=5 is no function"),
        (lambda: hedge("shop", 5), "5 is not a hedge"),
        (
            lambda: Filter(state="done"),
            "state is 'ready', 'running', 'waiting', 'succeeded', 'dead', 'cancelled', not 'done'",
        ),
        (lambda: Filter(hold="x"), "hold is "),
        (lambda: Filter(task=5), "Filter(task=): a text, got 5"),
        (lambda: Filter(queue=5), "Filter(queue=): a text, got 5"),
        (lambda: Filter(limit="x"), "Filter(limit=): a whole number, zero or more, got 'x'"),
        (lambda: Filter(after_id=-1), "Filter(after_id=): a whole number, zero or more, got -1"),
    ],
    ids=numbered,
)
def test_arguments_of_values(call: Callable[[], object], message: str):
    """Wrong arguments of schedules, jitter, rules, shared limits and filters are refused when these are made."""
    refused(call, message)


def meet(at: datetime, guests: list[datetime] | None = None, zone: ZoneInfo | None = None) -> None:
    """Take times and a zone."""


def test_a_time_does_not_lose_its_zone(app: App):
    """Times in a zone with changing offsets are refused, also inside a list; the zone can be an argument."""
    task = app.task(meet)
    kyiv = ZoneInfo("Europe/Kyiv")
    local = datetime(2026, 7, 1, 9, tzinfo=kyiv)

    for arguments in ((local,), (local.astimezone(UTC), [local])):
        with pytest.raises(
            PayloadError, match=r"has a time in the zone Europe/Kyiv, and JSON keeps only its offset: give"
        ):
            task.enqueue(*arguments)
    for at in (local.astimezone(UTC), local.replace(tzinfo=None), local.replace(tzinfo=ZoneInfo("UTC"))):
        task.enqueue(at, zone=kyiv)
    assert {"at": local, "zone": kyiv} == task.signature.read(
        task.signature.write((local.astimezone(UTC),), {"zone": kyiv})
    )
