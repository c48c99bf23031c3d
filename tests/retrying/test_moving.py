"""Options of tenacity, stamina and backoff beside those of redrive, as docs/how-to/move-from-*.md list them.

Both sides run: each makes the same number of calls, and waits as long. Random numbers are always the middle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import backoff
import pytest
import stamina
import tenacity
from tenacity import Retrying, stop_after_attempt

import redrive
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Jitter, Policy
from redrive.testing import using
from tests.retrying.helpers import JumpingClock

Calls = Callable[[Callable[[], Any]], object]
"""A form that makes the calls of a function."""


class Called:
    """A function that fails a few times, or always, and counts its calls."""

    def __init__(self, outcome: object = ConnectionError, failures: int = 100) -> None:
        self.calls = 0
        self._outcome, self._failures = outcome, failures

    def __call__(self) -> object:
        """Fail with an exception or a result, later return text."""
        self.calls += 1
        if self.calls > self._failures:
            return "done"
        if isinstance(self._outcome, type):
            raise self._outcome("down")
        return self._outcome


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch):
    """The waits of the other library, with random numbers in the middle of their range."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr("random.random", lambda: 0.5)
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    return waits


def ended(calls: Calls, function: Callable[[], Any]) -> tuple[bool, object]:
    """Return the result of a call, or its error."""
    try:
        return True, calls(function)
    except tenacity.RetryError as error:
        return False, type(error.last_attempt.exception())
    except Exception as error:  # noqa: BLE001 - compared
        return False, type(error)


def ours(policy: Policy, function: Callable[[], Any]) -> tuple[tuple[bool, object], list[float]]:
    """Return the end of a call under a policy, and its waits in seconds."""
    clock = JumpingClock()
    with using(clock=clock, sample=0.5):
        end = ended(policy.call, function)
    return end, clock.slept


def t(**options: Any) -> Calls:
    """Return a form of tenacity, with five attempts."""
    return Retrying(**{"stop": stop_after_attempt(5), **options})


def p(**fields: Any) -> Policy:
    """Return a policy with five attempts and no waits unless given."""
    return Policy(**{"on": Exception, "attempts": 5, "backoff": Backoff.constant(0), **fields})


TENACITY = {
    "stop_after_attempt": (t(stop=stop_after_attempt(2)), p(attempts=2)),
    "stop_any": (t(stop=stop_after_attempt(2) | tenacity.stop_never), p(attempts=2)),
    "stop_all": (
        t(stop=stop_after_attempt(2) & stop_after_attempt(4)),
        p(attempts=2, deadline=None) | p(attempts=4, deadline=None),
    ),
    "retry_never": (t(retry=tenacity.retry_never), p(attempts=1)),
    "wait_none": (t(wait=tenacity.wait_none()), p(backoff=Backoff.constant(0))),
    "wait_fixed": (t(wait=tenacity.wait_fixed(2)), p(backoff=Backoff.constant("2s"), jitter="none")),
    "wait_random": (t(wait=tenacity.wait_random(1, 3)), p(backoff=Backoff.constant("3s").floor("1s"))),
    "wait_incrementing": (
        t(wait=tenacity.wait_incrementing(1, 2, 6)),
        p(backoff=Backoff.linear("1s", "2s", "6s"), jitter="none"),
    ),
    "wait_exponential": (
        t(wait=tenacity.wait_exponential(multiplier=1, max=10, exp_base=3, min=2)),
        p(backoff=Backoff.exponential("1s", "10s", 3).floor("2s"), jitter="none"),
    ),
    "wait_random_exponential": (
        t(wait=tenacity.wait_random_exponential(multiplier=0.1, max=0.5)),
        p(backoff=Backoff.exponential("100ms", "500ms")),
    ),
    "wait_exponential_jitter": (
        t(wait=tenacity.wait_exponential_jitter(multiplier=1, max=60, jitter=1)),
        p(backoff=Backoff.exponential("1s", "60s"), jitter=Jitter.added("1s")),
    ),
    "wait_chain": (
        t(wait=tenacity.wait_chain(*[tenacity.wait_fixed(s) for s in (1, 1, 5)])),
        p(backoff=Backoff.listed([1, 1, 5]), jitter="none"),
    ),
    "wait_combine": (
        t(wait=tenacity.wait_fixed(3) + tenacity.wait_random(0, 2)),
        p(backoff=Backoff.constant("3s"), jitter=Jitter.added("2s")),
    ),
    "wait_exception": (t(wait=tenacity.wait_exception(lambda _: 7)), p(on=lambda _: 7)),
    "retry_if_exception_type": (t(retry=tenacity.retry_if_exception_type(KeyError)), p(on=KeyError)),
    "retry_if_not_exception_type": (
        t(retry=tenacity.retry_if_not_exception_type(ConnectionError)),
        p(on=lambda error: not isinstance(error, ConnectionError)),
    ),
    "retry_if_exception": (
        t(retry=tenacity.retry_if_exception(lambda error: "down" in str(error))),
        p(on=lambda error: "down" in str(error)),
    ),
    "retry_if_exception_message": (
        t(retry=tenacity.retry_if_exception_message(match="d.wn")),
        p(on=lambda error: str(error).startswith("down")),
    ),
    "retry_if_exception_cause_type": (
        t(retry=tenacity.retry_if_exception_cause_type(KeyError)),
        p(on=lambda error: isinstance(error.__cause__, KeyError)),
    ),
    "retry_all": (
        t(retry=tenacity.retry_if_exception_type(OSError) & tenacity.retry_if_exception_message("up")),
        p(on=lambda error: isinstance(error, OSError) and str(error) == "up"),
    ),
}

STAMINA = {
    "attempts": (
        stamina.RetryingCaller(attempts=3).on(OSError),
        p(on=OSError, attempts=3, backoff=Backoff.exponential("100ms", "5s"), jitter=Jitter.added("1s")),
    ),
    "wait_initial, wait_max, wait_exp_base": (
        stamina.RetryingCaller(attempts=5, wait_initial=1, wait_max=6, wait_exp_base=3, wait_jitter=0).on(OSError),
        p(on=OSError, backoff=Backoff.exponential("1s", "6s", 3), jitter="none"),
    ),
    "wait_jitter": (
        stamina.RetryingCaller(attempts=5, wait_max=60, wait_jitter=2).on(OSError),
        p(on=OSError, backoff=Backoff.exponential("100ms", "60s"), jitter=Jitter.added("2s")),
    ),
    "a tuple": (stamina.RetryingCaller(wait_jitter=0).on((KeyError, ValueError)), p(on=(KeyError, ValueError))),
    "a hook that returns a bool": (
        stamina.RetryingCaller(attempts=2, wait_initial=0, wait_jitter=0).on(lambda error: "down" in str(error)),
        p(on=lambda error: "down" in str(error), attempts=2),
    ),
    "a hook that returns a delay": (
        stamina.RetryingCaller(attempts=3).on(lambda _: 2.5),
        p(on=lambda _: 2.5, attempts=3),
    ),
}


def on_error(wait: Any, **options: Any) -> Calls:
    """Return a form of backoff for exceptions."""
    return lambda function: backoff.on_exception(wait, OSError, **options)(named(function))()


def on_result(wait: Any, **options: Any) -> Calls:
    """Return a form of backoff for results."""
    return lambda function: backoff.on_predicate(wait, **options)(named(function))()


def named(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function with a name, which the logs of backoff need."""

    def call() -> Any:
        return function()

    return call


BACKOFF = {
    "max_tries": (on_error(backoff.constant, max_tries=3, interval=0), p(attempts=3)),
    "expo": (
        on_error(backoff.expo, max_tries=6, base=3, factor=2, max_value=30, jitter=None),
        p(attempts=6, backoff=Backoff.exponential(2, 30, 3), jitter="none", deadline=None),
    ),
    "fibo": (
        on_error(backoff.fibo, max_tries=7, max_value=5, jitter=None),
        p(attempts=7, backoff=Backoff.named("fibonacci", base=1).cap(5), jitter="none"),
    ),
    "constant": (
        on_error(backoff.constant, max_tries=3, interval=2, jitter=None),
        p(attempts=3, backoff=Backoff.constant(2), jitter="none"),
    ),
    "constant of a list": (
        on_error(backoff.constant, interval=[1, 2, 3], jitter=None),
        p(attempts=9, backoff=Backoff.listed([1, 2, 3], end="stop"), jitter="none"),
    ),
    "runtime": (on_error(backoff.runtime, max_tries=3, value=lambda _: 7, jitter=None), p(on=lambda _: 7, attempts=3)),
    "full_jitter": (
        on_error(backoff.expo, max_tries=5, max_value=4),
        p(backoff=Backoff.exponential(1, 4)),
    ),
    "random_jitter": (
        on_error(backoff.expo, max_tries=5, jitter=backoff.random_jitter),
        p(backoff=Backoff.exponential(1), jitter=Jitter.added("1s")),
    ),
    "giveup": (
        on_error(backoff.constant, giveup=lambda error: "down" in str(error), interval=0),
        p(on=lambda error: isinstance(error, OSError) and "down" not in str(error)),
    ),
}


LIBRARIES = {"tenacity": TENACITY, "stamina": STAMINA, "backoff": BACKOFF}


@pytest.mark.parametrize(
    ("theirs", "policy"),
    [
        pytest.param(*pair, id=f"{library}: {name}")
        for library, all_ in LIBRARIES.items()
        for name, pair in all_.items()
    ],
)
def test_both_make_the_same_calls(theirs: Calls, policy: Policy, slept: list[float]):
    """Options that the guides name as equivalents make as many calls, wait as long and end with the same error."""
    one, other = Called(), Called()

    end = ended(theirs, one)
    own_end, own_slept = ours(policy, other)

    assert one.calls == other.calls
    assert end == own_end
    assert [each for each in slept if each] == pytest.approx([each for each in own_slept if each])


@pytest.mark.parametrize(
    ("theirs", "policy"),
    [
        (
            Retrying(stop=stop_after_attempt(5), retry=tenacity.retry_if_result(lambda value: value == 0)),
            p(on_result=lambda value: value == 0),
        ),
        (
            Retrying(stop=stop_after_attempt(5), retry=tenacity.retry_if_not_result(bool)),
            p(on_result=lambda value: not value),
        ),
        (on_result(backoff.constant, max_tries=5, interval=0), p(on_result=lambda value: not value)),
        (on_result(backoff.constant, predicate=lambda value: value == 0, interval=0), p(on_result=lambda v: v == 0)),
    ],
)
def test_both_reject_the_same_results(theirs: Calls, policy: Policy, slept: list[float]):
    """Results are rejected until there is another one."""
    one, other = Called(0, failures=3), Called(0, failures=3)

    assert (True, "done") == ended(theirs, one) == ours(policy, other)[0]
    assert 4 == one.calls == other.calls
    assert not any(slept)


def test_a_result_that_stays_rejected_is_returned(slept: list[float]):
    """Return the last result, as backoff does; tenacity raises RetryError."""
    rejecting = Retrying(stop=stop_after_attempt(5), retry=tenacity.retry_if_result(lambda _: True), reraise=True)
    with pytest.raises(tenacity.RetryError):
        rejecting(Called(0))

    assert 0 == on_result(backoff.constant, max_tries=5, interval=0)(Called(0))
    assert (True, 0) == ours(p(on_result=lambda _: True), Called(0))[0]
    assert not any(slept)


def test_a_rejected_result_can_have_the_delay(slept: list[float]):
    """Results have the value that `runtime` reads as an attribute of the result."""

    class BusyError:
        retry_after = 7

    one, other = Called(BusyError(), failures=2), Called(BusyError(), failures=2)
    wait = {"value": lambda result: result.retry_after, "jitter": None}
    theirs = on_result(backoff.runtime, predicate=lambda result: isinstance(result, BusyError), **wait)
    end, own_slept = ours(p(on_result=lambda result: isinstance(result, BusyError)), other)

    assert (True, "done") == ended(theirs, one) == end
    assert [7, 7] == slept == own_slept


def test_a_function_is_polled_until_it_raises():
    """Predicates for exceptions beside one for results do what `retry_unless_exception_type` does."""
    one, other = Called(1, failures=2), Called(1, failures=2)
    raising = [one, other]

    def poll(called: Called) -> Callable[[], object]:
        def polled() -> object:
            if called() == "done":
                raise KeyError
            return 1

        return polled

    theirs = Retrying(stop=stop_after_attempt(5), retry=tenacity.retry_unless_exception_type(KeyError))
    policy = p(on=lambda error: not isinstance(error, KeyError), on_result=lambda _: True)

    assert (False, KeyError) == ended(theirs, poll(one)) == ours(policy, poll(other))[0]
    assert [3, 3] == [each.calls for each in raising]


def test_an_event_ends_the_retries():
    """Predicates that read the event do what `stop_when_event_set` does."""
    stop = threading.Event()

    def failing(called: Called) -> Callable[[], object]:
        def fail() -> object:
            if called.calls == 1:
                stop.set()
            return called()

        return fail

    one, other = Called(), Called()
    ended(Retrying(stop=tenacity.stop_when_event_set(stop)), failing(one))
    stop.clear()
    ours(p(on=lambda error: isinstance(error, OSError) and not stop.is_set()), failing(other))

    assert 2 == one.calls == other.calls


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempt_at_all_is_refused(attempts: int, slept: list[float]):
    """Numbers below one are refused; tenacity and stamina make one call, and backoff retries without end."""
    one, other, third = Called(), Called(), Called(failures=50)
    ended(Retrying(stop=stop_after_attempt(attempts)), one)
    ended(stamina.RetryingCaller(attempts=attempts).on(OSError), other)
    on_error(backoff.constant, max_tries=attempts, interval=0)(third)

    assert (1, 1, 51) == (one.calls, other.calls, third.calls)
    assert not any(slept)
    with pytest.raises(PolicyValueError, match=f"attempts={attempts}: attempts counts executions"):
        Policy(on=OSError, attempts=attempts)


def test_late_waits_are_spread_beyond_the_cap(monkeypatch: pytest.MonkeyPatch):
    """Jitter is added to the cap; tenacity and stamina cut it there, so that late waits are equal."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    ended(stamina.RetryingCaller(attempts=10).on(OSError), Called())
    late = waits[-3:]
    waits.clear()
    cut = tenacity.wait_exponential_jitter(multiplier=0.1, max=5, jitter=1)
    ended(Retrying(stop=stop_after_attempt(10), wait=cut), Called())
    policy = p(attempts=10, deadline=None, backoff=Backoff.exponential("100ms", "5s"), jitter=Jitter.added("1s"))

    assert [5.0] * 3 == late == waits[-3:]
    assert [5.5] * 3 == ours(policy, Called())[1][-3:]


def test_both_have_a_switch_for_the_process(slept: list[float]):
    """Switches for the whole process make calls without retries."""
    counts = []
    for switch, back, decorate in (
        (lambda: stamina.set_active(False), lambda: stamina.set_active(True), stamina.retry(on=OSError)),
        (redrive.disable, redrive.enable, redrive.retry(on=OSError)),
    ):
        called = Called()
        switch()
        try:
            with pytest.raises(ConnectionError):
                decorate(named(called))()
        finally:
            back()
        counts.append(called.calls)

    assert [1, 1] == counts
    assert [] == slept


def test_an_exception_of_the_consumer_is_not_retried():
    """Exceptions that the consumer throws into a generator are raised; stamina starts the generator again."""
    started = []

    def items() -> Iterator[int]:
        started.append(1)
        yield 1
        yield 2

    theirs = stamina.retry(on=ConnectionError, wait_initial=0, wait_jitter=0)(items)()
    own = redrive.retry(on=ConnectionError, generator="restart")(items)()
    next(theirs)
    next(own)

    assert 1 == theirs.throw(ConnectionError("thrown"))
    assert 3 == len(started)
    with pytest.raises(ConnectionError, match="thrown"):
        own.throw(ConnectionError("thrown"))
    assert 3 == len(started)


def test_nested_calls_do_not_multiply(slept: list[float]):
    """Three attempts around three attempts are nine calls in the other libraries, and three here."""
    wrap = [
        tenacity.retry(stop=stop_after_attempt(3), reraise=True),
        stamina.retry(on=OSError, attempts=3),
        backoff.on_exception(backoff.constant, OSError, max_tries=3, interval=0),
        redrive.retry(on=OSError, attempts=3, backoff=Backoff.constant(0)),
    ]
    counts = []
    for decorate in wrap:
        called = Called()
        with pytest.raises(ConnectionError):
            decorate(decorate(named(called)))()
        counts.append(called.calls)

    assert [9, 9, 9, 3] == counts
    assert slept


def test_a_wait_beyond_the_deadline_is_not_begun(slept: list[float]):
    """Waits that pass the deadline end the call; stamina waits a minute under a timeout of one second."""
    ended(stamina.RetryingCaller(attempts=2, timeout=1).on(lambda _: 60), Called())

    assert [60] == slept
    assert [] == ours(p(on=lambda _: 60, attempts=2, deadline=1), Called())[1]
