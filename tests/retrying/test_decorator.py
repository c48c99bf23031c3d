"""The decorator: which functions it takes, and what they are afterwards."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle

import pytest

import redrive
from redrive.errors import PolicySyntaxError, PolicyValueError
from redrive.policy import Backoff, Policy
from tests.retrying.helpers import Busy, Other, Script

AT_ONCE = {"on": Busy, "attempts": 3, "backoff": Backoff.constant(0)}


def test_a_function_is_called_until_it_succeeds():
    """Two failures and a success are three calls and one result."""
    script = Script(Busy(), Busy(), 42)

    assert 42 == redrive.retry(**AT_ONCE)(script)()
    assert 3 == script.calls


def test_a_success_is_one_call():
    """Successful calls are made once."""
    script = Script(42)

    assert 42 == redrive.retry(**AT_ONCE)(script)()
    assert 1 == script.calls


def test_the_number_of_a_directive_counts_retries(clock):
    """`5 100ms 2s` is six calls with five doubling waits."""
    script = Script(Busy())

    with pytest.raises(Busy):
        redrive.retry("5 100ms 2s", on=Busy)(script)()

    assert 6 == script.calls
    assert pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6]) == clock.slept


def test_keywords_replace_fields_of_the_policy(clock):
    """Fields given with a policy replace those of the policy."""
    script = Script(Busy())

    with pytest.raises(Busy):
        redrive.retry("9 1s", on=Busy, attempts=2)(script)()

    assert [1.0] == clock.slept


def test_another_failure_passes_at_once():
    """Errors that `on` does not name are raised by the first attempt, without a note or a record."""
    error = Other("no")
    script = Script(error)

    with pytest.raises(Other) as caught:
        redrive.retry(**AT_ONCE)(script)()

    assert 1 == script.calls
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert not hasattr(error, "__retry__")


def test_a_coroutine_function_stays_one(run):
    """Async functions remain coroutine functions."""
    script = Script(Busy(), Busy(), 42)
    retried = redrive.retry(**AT_ONCE)(script.as_async())

    assert inspect.iscoroutinefunction(retried)
    assert 42 == run(retried)
    assert 3 == script.calls


def test_methods_are_bound():
    """Methods, classmethods and staticmethods are retried and get what they are called on."""

    class Counter:
        calls = 0

        def count(self) -> int:
            Counter.calls += 1
            if Counter.calls % 2:
                raise Busy
            return Counter.calls

        @redrive.retry(**AT_ONCE)
        def method(self, word):
            self.count()
            return self, word

        @redrive.retry(**AT_ONCE)
        @classmethod
        def above(cls, word):
            cls().count()
            return cls, word

        @classmethod
        @redrive.retry(**AT_ONCE)
        def below(cls, word):
            cls().count()
            return cls, word

        @redrive.retry(**AT_ONCE)
        @staticmethod
        def static(word):
            Counter().count()
            return word

    counter = Counter()

    assert (counter, "a") == counter.method("a")
    assert (Counter, "b") == counter.above(word="b")
    assert (Counter, "c") == Counter.below("c")
    assert "d" == counter.static("d")
    assert 8 == Counter.calls


def test_name_signature_and_docstring_are_kept():
    """Decorated functions keep name, signature and docstring."""

    def fetch(url: str, /, times: int = 2, *rest: int, quick: bool = True, **more: str) -> str:
        """Fetch."""

    retried = redrive.retry(**AT_ONCE)(fetch)

    assert ("fetch", "Fetch.", fetch.__qualname__) == (retried.__name__, retried.__doc__, retried.__qualname__)
    assert inspect.signature(fetch) == inspect.signature(retried)
    assert fetch is retried.__wrapped__


def test_callables_can_be_decorated():
    """Partials, bound methods, builtins and callable objects are retried."""

    class Adder:
        calls = 0

        def __call__(self, a, b):
            Adder.calls += 1
            if Adder.calls == 1:
                raise Busy
            return a + b

    adder = Adder()

    assert 3 == redrive.retry(**AT_ONCE)(adder)(1, b=2)
    assert 5 == redrive.retry(**AT_ONCE)(functools.partial(adder, 2))(3)
    assert 7 == redrive.retry(**AT_ONCE)(adder.__call__)(3, 4)
    assert 3 == redrive.retry(**AT_ONCE)(len)("abc")


def test_a_callable_that_is_async_inside_is_awaited(run):
    """Partials of coroutine functions and objects with an async `__call__` are retried as async functions."""

    class Asker:
        def __init__(self) -> None:
            self.script = Script(Busy(), 42).as_async()

        async def __call__(self):
            return await self.script()

    assert 42 == run(redrive.retry(**AT_ONCE)(Asker()))
    assert 42 == run(redrive.retry(**AT_ONCE)(functools.partial(Asker().__call__)))


def test_a_function_marked_as_coroutine_function_is_awaited(run):
    """Functions marked as coroutine functions are retried as such, though their code is plain."""
    script = Script(Busy(), 42).as_async()

    def ask():
        return script()

    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(ask)
    else:
        ask._is_coroutine = asyncio.coroutines._is_coroutine

    assert 42 == run(redrive.retry(**AT_ONCE)(ask))


@pytest.mark.parametrize("wrong", [int, object(), 3])
def test_objects_that_are_not_callable_are_refused(wrong: object):
    """Classes and objects that cannot be called are refused at decoration."""
    with pytest.raises(TypeError, match="cannot decorate"):
        redrive.retry(**AT_ONCE)(wrong)


def test_the_decorator_without_parentheses_is_refused():
    """`@retry` without parentheses raises an error that explains it."""
    with pytest.raises(TypeError, match="on="):
        redrive.retry(test_a_success_is_one_call)


def sample() -> None:
    """Return 1; the function has a name."""


@pytest.mark.parametrize("policy", ["5 1s", Policy(attempts=3), None])
def test_on_must_be_given(policy):
    """Policies without `on` are refused at decoration, with the name of the function."""
    with pytest.raises(PolicyValueError, match=r"sample.*on="):
        redrive.retry(policy)(sample)


@pytest.mark.parametrize("field", [{"hedge": "h"}, {"hedge": "h", "idempotent": True}, {"catch": "recover"}])
def test_fields_for_jobs_are_refused_in_process(field):
    """Fields that calls in process do not support are refused, with the name of the function."""
    with pytest.raises(PolicyValueError, match=rf"sample: {next(iter(field))}="):
        redrive.retry(Policy(on=Busy, **field))(sample)


def test_a_bad_directive_is_refused_at_once():
    """Invalid directives are refused at once."""
    with pytest.raises(PolicySyntaxError):
        redrive.retry("often", on=Busy)


def test_a_generator_mode_needs_a_generator():
    """Modes for generators are refused on plain functions."""
    with pytest.raises(PolicyValueError, match="not a generator function"):
        redrive.retry(**AT_ONCE, generator="restart")(sample)


def test_the_policy_is_an_attribute():
    """Decorated functions have their policy as an attribute."""
    policy = Policy(on=Busy)

    assert policy is redrive.retry(policy)(Script(1)).policy


def retried_sample(x: int) -> int:
    """Double."""
    return 2 * x


plain_sample, retried_sample = retried_sample, redrive.retry(**AT_ONCE)(retried_sample)


def test_a_decorated_function_can_be_pickled():
    """It pickles by name, as other functions do, so that it can go to a pool of processes."""
    assert 6 == pickle.loads(pickle.dumps(retried_sample))(3)


def test_a_wrong_argument_is_not_retried():
    """Wrong arguments raise a TypeError with the function's name, without an attempt."""
    with pytest.raises(TypeError, match=r"retried_sample\(\) got an unexpected keyword argument 'y'"):
        retried_sample(y=1)
