"""Whatever a handler does becomes one frozen outcome, and never an exception of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, Cancel, CatchRequest, Context, GiveUp, RetryAfter, Snooze
from redrive.engine.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded
from redrive.errors import TaskDefinitionError
from redrive.policy import Stage
from redrive.runtime.executor import Executor
from redrive.runtime.handlers import TimeLimits
from redrive.runtime.threads import ThreadPool
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending
from tests.runtime.helpers import PATIENCE, UserBaseException, failure, raising, run_due, take


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    """Return the thread pool in which ``def`` handlers run."""
    with contextlib.closing(ThreadPool(2, "handler")) as pool:
        yield pool


def run_handler(app: App, handler: Callable[..., Any], pool: ThreadPool | None = None, **options: Any) -> Outcome:
    """Make a task of a handler without arguments, and run one job of it."""
    app.task(name="handler", **options)(handler).enqueue()
    return run_due(app, pool)


# ------------------------------------------------------------------------------------------------------------- results


def test_the_returned_value_is_the_result(app: App):
    """Store the returned value as JSON."""

    async def handler() -> dict[str, int]:
        """Return a dictionary."""
        return {"cents": 250}

    assert Succeeded(b'{"cents":250}') == run_handler(app, handler)


def test_none_is_a_result(app: App):
    """Handlers that return None have succeeded without a result."""

    async def handler() -> None:
        """Return None."""

    assert Succeeded(None) == run_handler(app, handler)


def test_a_result_that_cannot_be_stored_ends_the_job(app: App):
    """After a result that cannot be stored the job is not repeated; the reason is BAD_RESULT."""

    async def handler() -> object:
        """Return what has no JSON."""
        return object()

    failed = failure(run_handler(app, handler))

    assert ("BAD_RESULT", failed.message) == (failed.reason, failed.permanent)
    assert failed.message.startswith("the result cannot be stored: object cannot be written as JSON")


def test_a_result_that_does_not_match_the_annotation_fails_the_attempt(app: App):
    """`Job.result` could not read it; another attempt would return the same, so there is none."""

    async def handler() -> int:
        """Return a text."""
        return "seven"

    failed = failure(run_handler(app, handler, retry="3 1s"))

    assert ("BAD_RESULT", failed.message) == (failed.reason, failed.permanent)
    assert 'the result "seven" does not match -> int: Expected `int`, got `str`' == failed.message


def test_an_annotation_that_json_cannot_carry_is_an_outcome_of_the_job(app: App):
    """Annotations that are resolved only at the attempt do not make the executor fail as a whole."""

    async def handler():
        """Return a value with the same JSON in either case."""
        return [1]

    handler.__annotations__["return"] = "Later"
    app.task(name="handler")(raising(ValueError())).enqueue()
    app.tasks.clear()
    app.task(name="handler")(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "Later", list[int] | set[int])
        failed = failure(run_due(app))

    assert "BAD_RESULT" == failed.reason
    assert failed.message.startswith("task 'handler': its return annotation -> list[int] | set[int] cannot be read")


# ----------------------------------------------------------------------------------------------- threads and coroutines


def test_def_handlers_run_in_a_thread_of_the_pool(app: App, pool):
    """Blocking handlers do not block the others."""

    def handler() -> str:
        return threading.current_thread().name

    assert Succeeded(b'"handler_0"') == run_handler(app, handler, pool)


def test_without_a_pool_def_handlers_run_in_the_calling_thread(app: App):
    """Drain mode runs everything in the calling thread."""

    def handler() -> str:
        return threading.current_thread().name

    assert Succeeded(f'"{threading.current_thread().name}"'.encode()) == run_handler(app, handler)


def test_a_thread_sees_the_context_variables(app: App, pool):
    """Handlers in threads see the context variables of the worker, such as a trace."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("seen")

    def handler() -> str:
        return variable.get()

    assert Succeeded(b'"seen"') == run_handler(app, handler, pool)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_plain_decorator_around_a_coroutine_function_is_awaited(app: App, pool, pooled):
    """If a ``def`` handler returns a coroutine, it is awaited and not stored as a result."""

    async def inner() -> int:
        """Return something."""
        return 7

    @functools.wraps(inner)
    def handler() -> Any:
        return inner()

    del handler.__wrapped__

    assert Succeeded(b"7") == run_handler(app, handler, pool if pooled else None)


# -------------------------------------------------------------------------------------------------------------- errors


class Declined(ConnectionError):
    """An error of the user's."""


def test_an_error_is_a_failure_with_its_classes_text_and_traceback(app: App):
    """Failures have the classes that a policy matches, the text of the error, and its traceback."""
    outcome = run_handler(app, raising(Declined("card 7")))
    failed = failure(outcome)

    assert (f"{__name__}.Declined", "builtins.ConnectionError") == failed.types[:2]
    assert ("card 7", "ERROR", Stage.ANSWERED, None) == (failed.message, failed.reason, failed.stage, failed.permanent)
    assert isinstance(outcome, Failed)
    assert "in handler\n    raise error\n" in outcome.traceback


def test_an_error_in_a_thread_is_the_same(app: App, pool):
    """Errors have the same text in a thread and in a coroutine."""

    def handler() -> None:
        raise Declined("card 7")

    outcome = run_handler(app, handler, pool)

    assert f"{__name__}.Declined" == failure(outcome).error_type


def test_stop_iteration_in_a_thread_is_a_failure(app: App, pool):
    """If a handler raises StopIteration, which a future cannot carry, the attempt fails and does not hang."""

    def handler() -> int:
        return next(iter(()))

    failed = failure(run_handler(app, handler, pool))

    assert ("builtins.RuntimeError", "the function raised StopIteration") == (failed.error_type, failed.message)


@pytest.mark.parametrize(
    "error",
    [SystemExit("3"), KeyboardInterrupt("3"), GeneratorExit("3"), UserBaseException("3"), asyncio.CancelledError("3")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("timed", [{}, {"timeout": "20s", "soft_timeout": "10s"}])
def test_every_exception_of_a_handler_is_only_a_failure_of_its_attempt(app: App, pool, error, threaded, timed):
    """No exception of a handler ends the worker; the failure has its class and its text."""

    def handler() -> None:
        raise error

    failed = failure(run_handler(app, handler if threaded else raising(error), pool, **timed))

    if isinstance(error, asyncio.CancelledError):
        assert "redrive.runtime.handlers.HandlerCancelled" == failed.error_type
    else:
        assert (f"{type(error).__module__}.{type(error).__name__}", "3") == (failed.error_type, failed.message)


def test_something_awaited_that_was_cancelled_is_a_failure(app: App):
    """Only the worker may take an attempt back; a cancellation that leaks out of a library spends a retry."""

    async def handler() -> None:
        """Wait for something that is cancelled."""
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    failed = failure(run_handler(app, handler))

    assert "redrive.runtime.handlers.HandlerCancelled" == failed.error_type
    assert "the handler, or something that it awaited, was cancelled" == failed.message
    assert "builtins.Exception" in failed.types


def test_an_attempt_cancelled_by_the_worker_has_no_outcome(app: App):
    """Cancellations by the worker pass through, and the handler sees them."""
    seen: list[str] = []

    async def attempt() -> None:
        """Take the attempt back when its handler runs."""
        (claim,) = take(app)
        started = asyncio.Event()

        @app.task(name="handler")
        async def handler() -> None:
            """Wait to be taken back."""
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        running = asyncio.create_task(Executor(app, None).run(claim))
        await started.wait()
        running.cancel()
        await running

    app.task(name="handler")(raising(ValueError())).enqueue()
    app.tasks.clear()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(attempt())

    assert ["cancelled"] == seen


@pytest.mark.parametrize("raised", [ValueError(), GiveUp("closed")])
def test_a_handler_that_replaces_the_cancellation_by_the_worker_has_no_outcome(app: App, raised):
    """An error of the cleanup is no failure of the attempt, which runs again; a signal of redrive is an outcome."""

    async def handler() -> None:
        """Raise another error when cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            raise raised

    async def attempt() -> Outcome:
        """Cancel the attempt as soon as it waits."""
        (claim,) = take(app)
        running = asyncio.ensure_future(Executor(app, None, cut_off=lambda _: True).run(claim))
        await asyncio.sleep(0)  # noqa: TID251 - no sleep: it lets the handler begin
        running.cancel()
        return await running

    app.task(name="handler")(handler).enqueue()

    if isinstance(raised, GiveUp):
        assert "closed" == failure(asyncio.run(attempt())).permanent
    else:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(attempt())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("\ud800 and more"), "? and more"),
        (ValueError("ä€😀"), "ä€😀"),
        (ValueError("x" * 10_000), "x" * 4_000),
        (GiveUp("\ud800"), "?"),
    ],
)
def test_error_texts_can_be_stored(app: App, error, expected):
    """Replace lone surrogates, and cut texts after some thousand characters."""
    outcome = run_handler(app, raising(error))

    assert expected == failure(outcome).message
    assert isinstance(outcome, Failed)
    assert 16_000 >= len(outcome.traceback)
    outcome.traceback.encode()
    (failure(outcome).permanent or "").encode()


@pytest.mark.parametrize("swallows", [True, False])
def test_a_handler_that_cancels_its_own_task_fails_or_continues(app: App, swallows):
    """If a handler cancels its own task, this is no cancellation by the worker, and it ends with the handler."""
    left: list[int] = []

    async def handler() -> str:
        """Cancel the present task."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallows:
                raise
        return "went on"

    async def run() -> Outcome:
        """Run the attempt as a worker does, and count the cancellations that are left."""
        (claim,) = take(app)
        outcome = await Executor(app, None, cut_off=lambda _: False).run(claim)
        task = asyncio.current_task()
        left.append(0 if task is None else task.cancelling())
        return outcome

    app.task(name="handler")(handler).enqueue()
    outcome = asyncio.run(run())

    if swallows:
        assert Succeeded(b'"went on"') == outcome
    else:
        assert ("redrive.runtime.handlers.HandlerCancelled", [0]) == (failure(outcome).error_type, left)


class ExitingError(Exception):
    """An error that raises another one at each access."""

    def __getattr__(self, name: str) -> Any:
        """Fail."""
        raise SystemExit(name)

    def __str__(self) -> str:
        """Fail."""
        raise KeyboardInterrupt


def test_an_error_that_cannot_be_read_is_still_a_failure(app: App):
    """Failures have the classes of the exception, and state that its text could not be read."""
    failed = failure(run_handler(app, raising(ExitingError())))

    assert (f"{__name__}.ExitingError", "builtins.Exception", "builtins.BaseException") == failed.types
    assert failed.message.startswith(f"<no message: reading {__name__}.ExitingError raised ")


class Unreadable(Exception):
    """An error with a text that cannot be read."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("no words")


def test_an_error_without_a_text_is_still_a_failure(app: App):
    """Broken ``__str__`` methods do not hide the failure."""
    assert (
        "<no message: RuntimeError in Unreadable.__str__>" == failure(run_handler(app, raising(Unreadable()))).message
    )


# ------------------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (Snooze("10m", "the market is closed"), Snoozed(timedelta(minutes=10), "the market is closed")),
        (Snooze(1.5), Snoozed(timedelta(seconds=1.5), "")),
        (Snooze(timedelta(hours=1), "\ud800"), Snoozed(timedelta(hours=1), "?")),
        (Cancel("ordered twice"), Cancelled("ordered twice")),
        (Cancel("\ud800"), Cancelled("?")),
    ],
)
@pytest.mark.parametrize("threaded", [True, False])
def test_signals_that_are_no_failures(app: App, pool, signal, expected, threaded):
    """Snooze and Cancel determine the next state of the job."""

    def handler() -> None:
        raise signal

    assert expected == run_handler(app, handler if threaded else raising(signal), pool)


def test_retry_after_dictates_the_delay(app: App):
    """Treat RetryAfter as a failure with a hint."""
    failed = failure(run_handler(app, raising(RetryAfter("15m", "too many requests"))))

    assert ("RETRY_AFTER", timedelta(minutes=15), "too many requests") == (failed.reason, failed.hint, failed.message)


def test_give_up_is_final(app: App):
    """GiveUp is a failure with the reason why no further attempt is useful."""
    failed = failure(run_handler(app, raising(GiveUp("the card is stolen"))))

    assert ("GAVE_UP", "the card is stolen") == (failed.reason, failed.permanent)


@pytest.mark.parametrize("signal", [RetryAfter("nonsense"), Snooze("nonsense"), Snooze(-1), RetryAfter(float("nan"))])
def test_a_signal_with_an_unreadable_delay_is_a_failure(app: App, signal):
    """If the delay cannot be read, its error becomes the failure, and the policy decides."""
    failed = failure(run_handler(app, raising(signal)))

    assert failed.error_type in {"redrive.errors.PolicySyntaxError", "redrive.errors.PolicyValueError"}
    assert (None, "ERROR") == (failed.permanent, failed.reason)


# ------------------------------------------------------------------------------------------------------------ timeouts


def test_a_coroutine_is_cancelled_at_its_timeout(app: App):
    """After the timeout the outcome is unknown: reason TIMEOUT, stage in flight."""
    seen: list[str] = []

    async def handler() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    failed = failure(run_handler(app, handler, timeout="1ms"))

    assert ("TIMEOUT", Stage.IN_FLIGHT) == (failed.reason, failed.stage)
    assert ("builtins.TimeoutError", "the attempt took longer than 0.001 s") == (failed.error_type, failed.message)
    assert ["cancelled"] == seen


def test_a_thread_past_its_timeout_runs_on(app: App, pool):
    """Python cannot stop it: the attempt is over at the timeout, and the thread ends when it likes."""
    go, gone = threading.Event(), threading.Event()

    def handler() -> None:
        go.wait(PATIENCE)
        gone.set()

    failed = failure(run_handler(app, handler, pool, timeout="1ms"))
    before = gone.is_set()
    go.set()

    assert ("TIMEOUT", False, True) == (failed.reason, before, gone.wait(PATIENCE))


@pytest.mark.parametrize("timeout", [None, "1h"])
def test_a_timeout_error_of_the_handler_is_an_ordinary_error(app: App, timeout):
    """Record the reason ERROR, since the attempt itself was in time; what the handler waited for may have happened."""
    failed = failure(run_handler(app, raising(TimeoutError("the server is slow")), timeout=timeout))

    assert ("ERROR", "the server is slow", Stage.IN_FLIGHT) == (failed.reason, failed.message, failed.stage)


def test_an_attempt_without_a_timeout_has_an_hour(app: App, monkeypatch: pytest.MonkeyPatch):
    """Without a timeout of the task an attempt ends after an hour; a task may set a longer one, but not none."""
    limits: list[timedelta] = []
    within, seen = TimeLimits.within, []

    def noted(self: TimeLimits, limit: timedelta, running: Any) -> Any:
        """Remember by which limit the handler runs."""
        limits.append(limit)
        return within(self, limit, running)

    monkeypatch.setattr(TimeLimits, "within", noted)

    def send(context: Context) -> None:
        """Remember the limit."""
        seen.append(context.deadline_at)

    app.task(name="plain")(send).enqueue()
    app.task(name="long", timeout="3h")(send).enqueue()
    run_due(app)
    run_due(app)

    assert [timedelta(hours=1), timedelta(hours=3)] == limits
    assert [app.clock.now() + limit for limit in limits] == seen
    with pytest.raises(TaskDefinitionError, match="shorter than its timeout"):
        app.task(name="soft", soft_timeout="2h")(send)


def test_a_catch_task_may_take_longer_than_an_hour(app: App):
    """Write the limit to the row of the job before the handler starts, so that no sweep takes the attempt."""

    def fails() -> None:
        """Fail."""
        raise ValueError("boom")

    def catches(request: CatchRequest) -> None:
        """Catch."""

    failing = app.task(name="fails", retry="0 catch catches")(fails)
    app.task(name="catches", timeout="3h")(catches)
    failing.enqueue()
    (claim,) = take(app)
    failed = asyncio.run(Executor(app, None).run(claim))
    app.store.run(leases.settle([Ending(claim, failed, 0.0)], now=app.clock.now()))
    (catching,) = take(app)
    asyncio.run(Executor(app, None).run(catching))
    app.clock.advance("2h")
    before = app.store.run(leases.sweep(9, now=app.clock.now()))
    app.clock.advance("1h10s")

    assert ((), 1) == (before, len(app.store.run(leases.sweep(9, now=app.clock.now()))))
