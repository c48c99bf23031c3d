"""Compiled wrappers: each signature is passed on as it came, and code is shared."""

from __future__ import annotations

import inspect
import linecache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redrive
from redrive.policy import Backoff, Policy
from redrive.retrying.wrapper import MARK
from tests.retrying.helpers import Busy

AT_ONCE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))


def nothing():
    """No parameters."""
    return ()


def positional(a, b=2):
    """With a default."""
    return a, b


def only_positional(a, b=2, /, c=3):
    """Positional only."""
    return a, b, c


def keywords(a, *, b, c=3):
    """Keyword only."""
    return a, b, c


def rest(a, *more, b=2):
    """Any number."""
    return a, more, b


def everything(a, /, b, c=3, *more, d, e=5, **others):
    """All kinds."""
    return a, b, c, more, d, e, others


CALLS = [
    (nothing, (), {}),
    (positional, (1,), {}),
    (positional, (1, 3), {}),
    (positional, (), {"a": 1, "b": 4}),
    (only_positional, (1,), {}),
    (only_positional, (1, 5), {"c": 6}),
    (keywords, (1,), {"b": 2}),
    (keywords, (), {"a": 1, "b": 2, "c": 4}),
    (rest, (1, 2, 3), {"b": 4}),
    (everything, (1, 2), {"d": 4}),
    (everything, (1, 2, 3, 4, 5), {"d": 6, "e": 7, "f": 8}),
    (everything, (1,), {"b": 2, "d": 4, "a": 9}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_arguments_are_passed_on(function, args, kwargs):
    """Decorated functions are called with the arguments of the plain ones."""
    assert function(*args, **kwargs) == redrive.retry(AT_ONCE)(function)(*args, **kwargs)


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_arguments_are_passed_on_again(function, args, kwargs, clock):
    """Second attempts get the same arguments, also where a scope is in force."""
    failures = []

    # A copy whose first call fails, with the signature of the original.
    head = f"def copy{inspect.signature(function)}:\n"
    body = "    if not failures:\n        failures.append(1)\n        raise Busy\n"
    names = list(inspect.signature(function).parameters)
    namespace = {"failures": failures, "Busy": Busy}
    exec(f"{head}{body}    return ({', '.join(names)}{',' if names else ''})", namespace)  # noqa: S102 - our own text
    expected = function(*args, **kwargs)

    assert expected == redrive.retry(AT_ONCE)(namespace["copy"])(*args, **kwargs)
    failures.clear()
    with redrive.disabled():
        failures.append(1)
        assert expected == redrive.retry(AT_ONCE)(namespace["copy"])(*args, **kwargs)


NAMES = st.lists(st.sampled_from(["a", "b", "c", "self", "_rd_call", "_rd_x", "wrapper", "_rd_plan"]), unique=True)


@given(names=NAMES)
def test_every_parameter_name_is_allowed(names):
    """Functions with parameters named like the wrapper's variables work."""
    namespace = {}
    listed = ", ".join(names)
    exec(f"def function({listed}): return ({listed}{',' if names else ''})", namespace)  # noqa: S102 - our own text
    values = tuple(range(len(names)))
    wrapped = redrive.retry(AT_ONCE)(namespace["function"])

    assert values == wrapped(*values) == wrapped(**dict(zip(names, values, strict=True)))


def test_functions_of_one_shape_share_their_wrappers_code():
    """Two functions with the same parameters and other defaults have one code and their own defaults."""

    def one(a, b=1):
        return a, b

    def two(a, b=2):
        return a, b

    first, second = redrive.retry(AT_ONCE)(one), redrive.retry(AT_ONCE)(two)

    assert first.__code__ is second.__code__
    assert ((0, 1), (0, 2)) == (first(0), second(0))


def test_the_text_of_a_wrapper_can_be_read():
    """Lines of a wrapper are known to `linecache` after a failure, for tracebacks and debuggers."""
    wrapper = redrive.retry(AT_ONCE)(keywords)

    assert "<redrive.retry: def wrapper(a, *, b, c)>" == wrapper.__code__.co_filename
    linecache.checkcache()
    assert "    def wrapper(a, *, b, c):\n" == linecache.getline(wrapper.__code__.co_filename, 2)


def test_a_method_with_mangled_names_works():
    """Parameters with mangled names are passed on."""

    class Box:
        @redrive.retry(AT_ONCE)
        def put(self, __name):  # noqa: PYI063 - an old way to say positional-only, and mangled
            return __name

    assert 3 == Box().put(3)


def test_compiling_does_not_change_the_signature():
    """Compiling a wrapper leaves nothing in the shared globals, so that threads may compile at once."""
    redrive.retry(AT_ONCE)(everything)

    assert {"__builtins__", "__name__"} == set(MARK)
    assert MARK is redrive.retry(AT_ONCE)(everything).__globals__
