"""Tests of calls that may have taken effect: each stage under each declaration, in each form, by each library."""

from __future__ import annotations

import asyncio
import functools
import pickle
import urllib.error
from typing import Any

import pytest
import trio

import redrive
from redrive import App, Policy
from redrive.clock import SystemClock
from redrive.errors import PolicyValueError
from redrive.policy import Stage
from redrive.policy.breaker import BreakerSettings, BreakerStatus
from redrive.policy.failure import forbid_repetition, forbidden_by
from redrive.retrying import Hedge, breaker
from redrive.testing import VirtualClock, drain

# ------------------------------------------------------------------------------------------------------ the matrix

ATTEMPTS = 3
FAILURES = {
    "not sent": (ConnectionRefusedError, Stage.NOT_SENT),
    "not sent, by urllib": (lambda: urllib.error.URLError(ConnectionRefusedError()), Stage.NOT_SENT),
    "in flight": (ConnectionResetError, Stage.IN_FLIGHT),
    "in flight, by urllib": (lambda: urllib.error.URLError(TimeoutError()), Stage.IN_FLIGHT),
    "answered": (lambda: OSError("mine"), Stage.ANSWERED),
}


def calls_of(stage: Stage, *words: bool | None) -> int:
    """Return how often a function is called that fails each time, by the written table.

    ``words`` are the declarations of the functions around it, the policy first: False forbids, and a policy that says
    nothing forbids too.
    """
    may = words[0] is True and False not in words
    return ATTEMPTS if stage is not Stage.IN_FLIGHT or may else 1


class Failing:
    """A function that fails each time, in both colours."""

    def __init__(self, make: Any) -> None:
        self.make, self.calls = make, 0

    def plain(self) -> None:
        """Fail."""
        self.calls += 1
        raise self.make()

    async def awaited(self) -> None:
        """Fail later."""
        self.plain()


def decorated(policy: Policy, function: Any) -> Any:
    """Call a decorated function."""
    return redrive.retry(policy)(function)()


def called(policy: Policy, function: Any) -> Any:
    """Call a function by a policy."""
    return policy.call(function)


def outcome(policy: Policy, function: Any) -> Any:
    """Call a function by a policy, and raise its error."""
    return policy.outcome(function).unwrap()


def iterated(policy: Policy, function: Any) -> Any:
    """Call a function in a block."""
    for attempt in policy:
        with attempt:
            function()


async def adecorated(policy: Policy, function: Any) -> Any:
    """Await a decorated function."""
    await redrive.retry(policy)(function)()


async def acalled(policy: Policy, function: Any) -> Any:
    """Await a function by a policy."""
    await policy.acall(function)


async def aoutcome(policy: Policy, function: Any) -> Any:
    """Await a function by a policy, and raise its error."""
    (await policy.aoutcome(function)).unwrap()


async def aiterated(policy: Policy, function: Any) -> Any:
    """Await a function in a block."""
    async for attempt in policy:
        with attempt:
            await function()


SYNC = [decorated, called, outcome, iterated]
ASYNC = [adecorated, acalled, aoutcome, aiterated]
FORMS = [("sync", form) for form in SYNC] + [(run, form) for run in ("asyncio", "trio") for form in ASYNC]


def perform(library: str, form: Any, policy: Policy, failing: Failing, wrap: Any = None) -> Exception:
    """Make a call that fails, and return its error; ``wrap`` makes the called function from the failing one."""
    wrap = wrap or (lambda function: function)
    function = wrap(failing.plain if library == "sync" else failing.awaited)
    run = {
        "sync": lambda form, *call: form(*call),
        "trio": trio.run,
        "asyncio": lambda form, *call: asyncio.run(form(*call)),
    }
    with redrive.testing.using(clock=VirtualClock()), pytest.raises(OSError) as found:
        run[library](form, policy, function)
    return found.value


def policy_of(idempotent: bool | None, **fields: Any) -> Policy:
    """Return a policy for all errors of the matrix."""
    return Policy(on=OSError, attempts=ATTEMPTS, backoff=redrive.Backoff.constant(0), idempotent=idempotent, **fields)


EACH_FORM = pytest.mark.parametrize(("library", "form"), FORMS, ids=[f"{name}-{form.__name__}" for name, form in FORMS])
EACH_FAILURE = pytest.mark.parametrize(("make", "stage"), FAILURES.values(), ids=FAILURES)
EACH_WORD = pytest.mark.parametrize("word", [None, False, True])


@EACH_FORM
@EACH_FAILURE
@EACH_WORD
def test_a_call_in_flight_is_repeated_only_if_it_is_idempotent(library, form, make, stage, word):
    """The stage and the declaration decide, in each form."""
    failing = Failing(make)
    error = perform(library, form, policy_of(word), failing)

    assert calls_of(stage, word) == failing.calls
    assert (calls_of(stage, word) == 1) == any("idempotent=True" in note for note in error.__notes__)


def task_of(word: bool | None) -> Any:
    """Return a wrapper that makes a function a task, which is called directly."""
    return lambda function: App("memory://").task(name="charge", idempotent=word)(_named(function))


def retried_of(word: bool | None) -> Any:
    """Return a wrapper that makes a function a retried one, with a policy of its own."""
    return redrive.retry(policy_of(word))


def _named(function: Any) -> Any:
    """Return a function that a task can be, of the same colour as a method."""
    if asyncio.iscoroutinefunction(function):

        async def awaited() -> None:
            await function()

        return awaited

    def plain() -> None:
        function()

    return plain


def around(wrapped: Any) -> Any:
    """Return a function that calls another one, in the same colour."""
    if asyncio.iscoroutinefunction(getattr(wrapped, "function", wrapped)):

        async def awaited() -> None:
            await wrapped()

        return awaited

    def plain() -> None:
        wrapped()

    return plain


@EACH_FORM
@EACH_FAILURE
@pytest.mark.parametrize("word", [None, False])
@pytest.mark.parametrize("callee", [task_of, retried_of])
def test_the_word_of_a_called_function_counts(library, form, make, stage, word, callee):
    """A task or a retried function that forbids repetitions is not repeated by a policy around it that allows them."""
    failing = Failing(make)
    perform(library, form, policy_of(True), failing, lambda function: around(callee(word)(function)))

    assert calls_of(stage, True, word) == failing.calls


@EACH_WORD
def test_a_task_passed_to_a_policy_has_its_word(word):
    """`policy.call(task)` is a call of the task under a policy, too."""
    failing = Failing(ConnectionResetError)
    perform("sync", called, policy_of(True), failing, task_of(word))

    assert calls_of(Stage.IN_FLIGHT, True, word) == failing.calls


def _shared(clock: Any) -> tuple[int, Exception]:
    """Await one future with an exception twice; return the calls of the second function, and its error."""
    calls: list[int] = []

    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(ConnectionResetError())

        @redrive.retry(policy_of(False))
        async def book() -> None:
            await future

        @redrive.retry(policy_of(True))
        async def read() -> None:
            calls.append(1)
            await future

        with pytest.raises(ConnectionResetError):
            await book()
        await read()

    with redrive.testing.using(clock=clock), pytest.raises(ConnectionResetError) as found:
        asyncio.run(main())
    return len(calls), found.value


@pytest.mark.parametrize("clock", [SystemClock, VirtualClock])
def test_a_callee_that_is_over_has_no_word_in_a_later_call(clock):
    """One exception object is raised by two calls: the declaration of the first does not hold for the second."""
    calls, error = _shared(clock())

    assert ATTEMPTS == calls
    assert "book" not in "".join(error.__notes__[-1:])


def test_the_word_of_a_callee_in_another_process_counts():
    """Times of another process cannot be compared."""
    error = ConnectionResetError()
    forbid_repetition(error, "bank.charge", at=0.0)
    received = pickle.loads(pickle.dumps(error))

    assert ["bank.charge", None] == [forbidden_by(each, since=1.0) for each in (received, error)]
    with pytest.raises(ConnectionResetError):
        policy_of(True).call(Failing(iter([received]).__next__).plain)


def test_the_word_of_a_callee_outlives_another_exception():
    """Exceptions that name the first one as their cause are not repeated either."""
    calls = []
    charge = task_of(False)(Failing(ConnectionResetError).plain)

    @redrive.retry(policy_of(True))
    def book() -> None:
        calls.append(1)
        try:
            charge()
        except ConnectionResetError as error:
            raise OSError("not booked") from error

    with pytest.raises(OSError, match="not booked") as found:
        book()

    assert [1] == calls
    assert "charge is declared idempotent=False" in found.value.__notes__[0]


@pytest.mark.parametrize("library", ["asyncio", "trio"])
@pytest.mark.parametrize("callee", [task_of, retried_of])
@pytest.mark.parametrize("form", [adecorated, acalled, aiterated])
def test_the_word_of_a_callee_that_is_cut_off_counts(library, form, callee):
    """A timeout of the policy around it cancels it, and does not repeat it."""
    calls = []

    async def slow() -> None:
        calls.append(1)
        await (trio.Event() if library == "trio" else asyncio.Event()).wait()

    policy = policy_of(True, attempt_timeout="10ms")
    function = callee(False)(slow)

    async def book() -> None:
        await function()

    with pytest.raises(TimeoutError) as found:
        trio.run(form, policy, book) if library == "trio" else asyncio.run(form(policy, book))

    assert [1] == calls
    assert forbidden_by(found.value)


async def _closing(calls: list[int], library: str) -> None:
    """Wait until it is cancelled, and replace the cancellation."""
    calls.append(1)
    try:
        await (trio.Event() if library == "trio" else asyncio.Event()).wait()
    finally:
        raise OSError("the connection is closed")


async def _first(policy: Policy, function: Any) -> None:
    """Read the first item of a generator that calls a function."""

    @redrive.retry(policy)
    async def items() -> Any:
        yield await function()

    async for _ in items():
        pass


async def aprepared(policy: Policy, function: Any) -> Any:
    """Await a decorated function whose attempts have a timeout."""
    await redrive.retry(policy.with_(attempt_timeout="1h"))(function)()


async def aclassified(policy: Policy, function: Any) -> Any:
    """Await a function under a policy whose classifier is awaited."""

    async def on(_: Exception) -> bool:
        return True

    await redrive.retry(policy.with_(on=on))(function)()


@pytest.mark.parametrize("library", ["asyncio", "trio"])
@pytest.mark.parametrize("form", [*ASYNC, aprepared, aclassified, _first])
@pytest.mark.parametrize("outer", [adecorated, aiterated])
def test_the_word_of_a_callee_that_replaces_its_cancellation_counts(library, outer, form):
    """A callee that is cut off and raises an error of its own from its cleanup is not repeated either."""
    calls: list[int] = []

    async def close() -> None:
        await _closing(calls, library)

    async def book() -> None:
        await form(policy_of(False), close)

    async def main() -> None:
        await outer(policy_of(True, attempt_timeout=1e-6).with_(on=Exception), book)

    with pytest.raises(OSError):
        trio.run(main) if library == "trio" else asyncio.run(main())

    assert [1] == calls


@pytest.mark.parametrize("form", [adecorated, acalled, aiterated])
def test_a_cancellation_together_with_a_timeout_has_the_word_of_the_callee(form):
    """An attempt that replaces both ends with a cancellation, which is marked as any other."""

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.current_task().cancel()
            raise OSError("the connection is closed")

    with pytest.raises(asyncio.CancelledError) as found:
        asyncio.run(form(policy_of(False, attempt_timeout=1e-6), slow))

    assert forbidden_by(found.value)


@pytest.mark.parametrize("mode", ["until_first_item", "restart"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_that_has_yielded_an_item_has_its_word(is_async, mode):
    """A stream that fails after its first item is not repeated by a call around it."""
    calls = []

    def rows():
        calls.append(1)
        yield 1
        raise ConnectionResetError

    async def arows():
        for row in rows():
            yield row

    stream = redrive.retry(policy_of(False), generator=mode)(arows if is_async else rows)

    async def read():
        return [row async for row in stream()]

    with pytest.raises(ConnectionResetError) as found:
        asyncio.run(policy_of(True).acall(read)) if is_async else policy_of(True).call(lambda: list(stream()))

    assert [1] == calls
    assert "idempotent=False" in found.value.__notes__[-1]


def test_an_error_of_the_consumer_of_a_generator_is_not_marked():
    """The consumer throws it in: what it has called in flight is not the work of the generator."""

    @redrive.retry(policy_of(False))
    def rows():
        yield 1

    stream = rows()
    next(stream)
    with pytest.raises(ConnectionResetError) as found:
        stream.throw(ConnectionResetError())

    assert forbidden_by(found.value) is None


def test_a_generator_that_is_declared_not_idempotent_has_its_word():
    """Generators are functions like others."""
    calls = []

    @redrive.retry(policy_of(False))
    def rows():
        calls.append(1)
        yield from ()
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        policy_of(True).call(lambda: list(rows()))

    assert [1] == calls


def test_a_cancelled_async_generator_has_its_word():
    """The timeout of a policy around it cuts it off, and does not repeat it."""
    calls = []

    @redrive.retry(policy_of(False))
    async def rows():
        calls.append(1)
        await asyncio.Event().wait()
        yield 1

    async def read():
        return [row async for row in rows()]

    with pytest.raises(TimeoutError):
        asyncio.run(policy_of(True, attempt_timeout="10ms").acall(read))

    assert [1] == calls


def test_a_call_without_retries_of_its_own_has_its_word_too():
    """Where retries are switched off, the declaration still holds for calls around that place."""
    calls = []

    @redrive.retry(policy_of(False))
    def charge() -> None:
        calls.append(1)
        raise ConnectionResetError

    def book() -> None:
        with redrive.disabled():
            charge()

    with pytest.raises(ConnectionResetError):
        policy_of(True).call(book)

    assert [1] == calls


@pytest.mark.parametrize("callee", [task_of, retried_of])
def test_a_hedged_call_makes_no_copies_of_it(callee):
    """Copies run at the same time, so that a function that may run once is refused before it is called."""
    failing = Failing(ConnectionResetError)
    charge = callee(False)(failing.awaited)

    async def book() -> None:
        await charge()

    with pytest.raises(PolicyValueError, match="hedged"):
        asyncio.run(policy_of(True, hedge=Hedge("1ms")).acall(book))

    assert 0 == failing.calls


def test_an_inner_policy_that_says_nothing_leaves_the_word_to_the_outer_one():
    """What is not declared is no word: the outer call declares that all of it may be repeated."""
    failing = Failing(ConnectionResetError)
    perform("sync", decorated, policy_of(True), failing, redrive.retry(policy_of(None)))

    assert ATTEMPTS == failing.calls


# ---------------------------------------------------------------------------------------------- coroutine functions


async def _fetch(*_: Any) -> None:
    """Be a coroutine function."""


class _Client:
    async def get(self) -> None:
        """Be one, too."""

    async def __call__(self) -> None:
        """And so."""


@pytest.mark.parametrize("function", [_fetch, _Client().get, _Client(), functools.partial(_fetch, 1)])
@pytest.mark.parametrize("method", ["call", "outcome"])
def test_a_coroutine_function_is_refused(function, method):
    """Without `await` nothing would run and nothing be retried; the message names the method that awaits."""
    with pytest.raises(PolicyValueError, match=rf"await policy\.a{method}"):
        getattr(policy_of(True), method)(function)


# --------------------------------------------------------------------------------------------- circuit breakers


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyError(), BreakerStatus.CLOSED),
        (ConnectionRefusedError(), BreakerStatus.OPEN),
        (TimeoutError(), BreakerStatus.OPEN),
    ],
)
def test_only_an_answer_closes_an_open_breaker(error, status):
    """A failure that the policy does not retry is an answer of the target only if there was one."""
    settings = BreakerSettings(volume_threshold=1, error_threshold=1)
    clock = VirtualClock()
    with redrive.retrying.isolated(), redrive.testing.using(clock=clock):
        shared = breaker("bank", settings)
        policy = Policy(on=ValueError, attempts=1, breaker="bank")

        def fail(error: Exception) -> None:
            raise error

        for each in (ValueError(), error):
            with pytest.raises(type(each)):
                policy.call(fail, each)
            clock.advance(settings.sleep_window.total_seconds() + 1)

        assert status is shared.circuit.status


def test_a_call_in_flight_that_is_not_repeated_is_a_failure_of_its_target():
    """It counts for the breaker as it would with retries."""
    with redrive.retrying.isolated():
        shared = breaker("bank", BreakerSettings(volume_threshold=1, error_threshold=1))
        with pytest.raises(ConnectionResetError):
            policy_of(None, breaker="bank").call(Failing(ConnectionResetError).plain)

        assert BreakerStatus.OPEN is shared.circuit.status


# ------------------------------------------------------------------------------------------------------------- jobs


@EACH_FAILURE
@EACH_WORD
@pytest.mark.parametrize("callee", [None, False])
def test_a_job_in_flight_is_repeated_unless_that_is_forbidden(make, stage, word, callee):
    """A job may run twice by default; its own word and that of a task that it calls are heard."""
    app = App("memory://", clock=VirtualClock())
    failing = Failing(make)
    charge = app.task(name="charge", idempotent=callee)(_named(failing.plain))

    @app.task(retry=policy_of(None), idempotent=word)
    def book() -> None:
        charge()

    job = book.enqueue()
    drain(app)
    forbidden = stage is Stage.IN_FLIGHT and False in (word, callee)

    assert (1 if forbidden else ATTEMPTS) == failing.calls == len(job.attempts)
    assert ("not_idempotent" if forbidden else "attempts") == job.attempts[-1].rule
