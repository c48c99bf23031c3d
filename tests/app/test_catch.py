"""Catch tasks: their signatures, which are checked as early as possible, and their requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, Filter, Policy
from redrive.errors import CatchDefinitionError, TaskDefinitionError
from redrive.testing import VirtualClock, drain
from tests.app.samples import Payment
from tests.stores.helpers import empty

HERE = __name__


@dataclass(frozen=True)
class Refund:
    """A request with the same JSON as another one."""

    cents: int


def pay(payment: Payment) -> None:
    """Fail."""
    raise ConnectionError("no route")


def transfer(payment: Payment, account: str) -> None:
    """Fail with several arguments."""
    raise ConnectionError("no route")


def recover(request: CatchRequest[Payment]) -> None:
    """Take the right request."""


def recover_any(request: CatchRequest[Any]) -> None:
    """Take any request."""


def recover_object(request: CatchRequest[object]) -> None:
    """Take any request, annotated with object."""


def recover_bare(request: CatchRequest) -> None:
    """Take any request, without a parameter."""


def recover_with_context(context: Context, request: CatchRequest[Payment]) -> None:
    """Take a context too."""


def recover_mapping(request: CatchRequest[dict[str, Any]]) -> None:
    """Take the arguments by name."""


def recover_silently(request: CatchRequest[Payment]):
    """Promise nothing about what it returns."""


def wrong_request(request: CatchRequest[int]) -> None:
    """Take the request of another task."""


def no_request(payment: Payment) -> None:
    """Take the argument itself."""


def two_requests(request: CatchRequest[Payment], note: str) -> None:
    """Take another argument too."""


def takes_nothing() -> None:
    """Take nothing."""


def returns_something(request: CatchRequest[Payment]) -> int:
    """Return something."""
    return 7


def declare(app: App, function: Callable[..., Any], *, failing: Callable[..., Any] = pay, catch_first: bool) -> None:
    """Register a failing task and its catch task, in one order or the other."""
    failing_task = app.task(name="fails", retry="1 1s catch catches")
    catch_task = app.task(name="catches")
    if catch_first:
        catch_task(function)
        failing_task(failing)
    else:
        failing_task(failing)
        catch_task(function)


@pytest.mark.parametrize("catch_first", [True, False])
@pytest.mark.parametrize(
    "function", [recover, recover_any, recover_object, recover_bare, recover_with_context, recover_silently]
)
def test_valid_catch_tasks_are_accepted(app: App, function, catch_first):
    """Catch tasks may take the request's own type, Any, object or no parameter, and a Context, in either order."""
    declare(app, function, catch_first=catch_first)
    app.check()

    assert {"fails", "catches"} == set(app.tasks)


@pytest.mark.parametrize("function", [recover_mapping, recover_any])
def test_the_request_of_several_arguments_is_a_mapping(app: App, function):
    """Tasks of several arguments are caught as ``CatchRequest[dict[str, Any]]``."""
    declare(app, function, failing=transfer, catch_first=False)
    app.check()


@pytest.mark.parametrize("catch_first", [True, False])
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (wrong_request, "task 'fails' is caught by 'catches', which takes CatchRequest[int]; it would have to take "),
        (wrong_request, "CatchRequest[Payment] or CatchRequest[Any]"),
        (no_request, "catch task 'catches' must take exactly one CatchRequest[...] (and a Context, if needed), "),
        (no_request, "but it takes payment: Payment"),
        (
            two_requests,
            "but it takes request: redrive.app.tasks.catch.CatchRequest[tests.app.samples.Payment], note: str",
        ),
        (takes_nothing, "but it takes nothing"),
        (returns_something, "catch task 'catches' must return nothing (-> None), but it returns int"),
    ],
)
def test_catch_tasks_with_other_signatures_are_refused(app: App, function, why, catch_first):
    """Catch tasks that do not fit are refused at import, in either order of registration."""
    with pytest.raises(CatchDefinitionError) as refused:
        declare(app, function, catch_first=catch_first)

    assert why in str(refused.value)


def test_a_catch_task_that_is_missing_is_refused_at_the_first_use(app: App):
    """Missing catch tasks are refused at the first enqueue, which writes nothing; import cannot check them."""
    task = app.task(retry="1 1s catch recover")(pay)

    with pytest.raises(CatchDefinitionError) as refused:
        task.enqueue(Payment(1))

    assert "task 'pay' is to be caught by 'recover', but there is no such task; known tasks: pay" == str(refused.value)
    assert () == app.jobs.select()


def test_a_catch_task_may_be_registered_after_the_first_use(app: App):
    """Tasks that are added later are checked at the next use."""
    app.task(recover)
    app.check()
    late = app.task(name="late", retry="1 1s catch other")(pay)

    with pytest.raises(CatchDefinitionError, match="there is no such task; known tasks: late, recover"):
        late.enqueue(Payment(1))

    app.task(name="other")(recover)
    late.enqueue(Payment(1))

    assert 1 == app.jobs.stats().due


def test_annotations_that_name_later_classes_are_checked_at_the_first_use(app: App):
    """Annotations that cannot be resolved at import are checked at the first use."""

    def later(request: CatchRequest[Later]) -> None:  # noqa: F821 - the subject
        """Name a class that does not exist yet."""

    declare(app, later, catch_first=False)

    with pytest.raises(TaskDefinitionError, match="task 'catches': its annotations cannot be resolved: name 'Later'"):
        app.check()


def elsewhere(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """Return the function as one of another module."""
    function.__module__ = module
    return function


@pytest.mark.parametrize(
    "retry", ["1 1s catch recovery.catches", Policy(attempts=2, catch="shop.recovery.catches"), "1 1s catch catches"]
)
def test_a_catch_task_of_another_module_is_found(app: App, retry):
    """By its name, by ``module.task``, and in a Policy by the full name of the module."""

    def catches(request: CatchRequest[Payment]) -> None:
        """Catch from another module."""

    app.task(elsewhere(catches, "shop.recovery"))
    task = app.task(retry=retry)(pay)
    app.check()

    assert "catches" == app.find(task.policy.catch).name


@pytest.mark.parametrize("name", ["other.catches", "covery.catches", "catches.catches"])
def test_a_task_of_another_module_than_the_named_one_does_not_count(app: App, name):
    """If a policy names a module, a task of the same name in another module is not its catch task."""

    def catches(request: CatchRequest[Payment]) -> None:
        """Catch from another module."""

    app.task(elsewhere(catches, "shop.recovery"))
    task = app.task(retry=f"1 1s catch {name}")(pay)

    with pytest.raises(CatchDefinitionError, match=f"'{name}', but there is no such task"):
        task.enqueue(Payment(1))


def test_a_wrong_catch_task_of_another_module_is_refused_at_import(app: App):
    """Catch tasks of other modules are checked like those of the same module."""

    def catches(request: CatchRequest[int]) -> None:
        """Take the request of another task."""

    app.task(elsewhere(catches, "shop.recovery"))

    with pytest.raises(CatchDefinitionError, match="would have to take"):
        app.task(retry="1 1s catch recovery.catches")(pay)


def test_a_catch_task_gets_the_request_the_error_and_the_attempts(app: App):
    """It hears which task failed, with what, how often, and why the last time."""
    seen: list[CatchRequest[Payment]] = []

    @app.task
    def recovers(request: CatchRequest[Payment]) -> None:
        """Remember."""
        seen.append(request)

    job = app.task(retry="1 1s catch recovers")(pay).enqueue(Payment(250))
    drain(app)
    (request,) = seen

    assert ("pay", Payment(250), "Payment", "no route", job.id) == (
        request.task,
        request.request,
        request.request_type,
        request.error,
        request.job_id,
    )
    assert job.attempts == request.attempts
    assert [1, 2] == [attempt.number for attempt in request.attempts]


def test_a_caught_job_is_dead_and_has_the_time_of_the_catch(app: App):
    """After its catch task succeeded, a job is dead and has the time of the catch."""
    app.task(recover)
    job = app.task(retry="0 catch recover")(pay).enqueue(Payment(1))
    drain(app)
    job.refresh()

    assert ("dead", app.clock.now()) == (job.state, job.caught_at)
    assert "caught: 1 of 1 attempts failed (ConnectionError: no route)" == job.why
    assert (0, 1, 1) == (app.jobs.stats().dead, app.jobs.stats().caught, app.jobs.stats().succeeded)


@pytest.mark.parametrize("store", ["memory", "postgres"])
def test_a_stuck_catch_keeps_its_newest_attempts(store: str, tmp_path: Path):
    """The history of a catch job that fails for weeks has a hundred attempts, and its counts go on."""
    with empty(store, tmp_path) as url:
        app = App(url, clock=VirtualClock())

        @app.task
        def mend(request: CatchRequest[int]) -> None:
            raise OSError(f"{request.job_id}")

        @app.task(retry="0 catch mend")
        def work(number: int) -> None:
            raise OSError

        work.enqueue_many([1, 2])
        drain(app, within="6d")
        jobs = [app.job(row.id) for row in app.jobs.select(Filter(task="mend"))]

        assert len(jobs) == 2
        for job in jobs:
            numbers = [each.number for each in job.attempts]
            last = job.record.attempt
            assert last > 110
            assert list(range(last - 99, last + 1)) == numbers
        assert () == app.database.verify()
        app.close()


def test_a_catch_of_several_tasks_takes_a_union():
    """Each task is caught with its own request, also if JSON does not tell their classes apart."""
    app, caught = App("memory://", clock=VirtualClock()), []

    @app.task
    def mend(request: CatchRequest[Payment | Refund]) -> None:
        caught.append(request.request)

    @app.task(retry="0 catch mend")
    def pay(payment: Payment) -> None:
        raise OSError

    @app.task(retry="0 catch mend")
    def refund(refund: Refund) -> None:
        raise OSError

    pay.enqueue(Payment(1))
    refund.enqueue(Refund(1))
    drain(app)
    app.close()

    assert [Payment(1), Refund(1)] == sorted(caught, key=lambda each: type(each).__name__)
    assert {"type": "object", "properties": {}, "title": "mend"} == mend.signature.schema


def test_a_catch_of_a_type_that_cannot_be_read_is_refused():
    """Each type of a union must be one that JSON can be read as."""
    app = App("memory://")
    with pytest.raises(TaskDefinitionError, match="its request cannot be read from JSON: Path"):

        @app.task
        def mend(request: CatchRequest[Payment | Path]) -> None:
            """Do nothing."""
