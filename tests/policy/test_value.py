"""Tests of `redrive.policy.value`."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest
from hypothesis import given

from redrive.policy import Jitter, Policy
from redrive.policy.backoff_kinds import Constant, Linear
from redrive.policy.value import NamedTuple
from tests.policy.strategies import policies


def test_values_of_equal_fields_are_equal():
    """Two values with the same fields are equal and have the same hash."""
    assert Linear(1, 2) == Linear("1s", 2.0)
    assert hash(Linear(1, 2)) == hash(Linear("1s", 2.0))


def test_values_of_different_fields_are_not_equal():
    """Values differ from those with other fields, and from values of another class."""
    assert Linear(1, 2) != Linear(1, 3)
    assert Constant(1) != Linear(1, 0)
    assert Constant(1) != 1.0


def test_a_value_cannot_be_changed():
    """Setting or deleting an attribute of a value is refused, with the way to make a changed copy."""
    value = Constant(1)

    with pytest.raises(AttributeError, match=r"Constant is frozen: 'value' .* \.with_\(\)"):
        value.value = 2.0
    with pytest.raises(AttributeError, match="Constant is frozen: 'value' cannot be deleted"):
        del value.value
    assert Constant(1) == value


def test_with_changes_a_copy():
    """`with_` returns a changed copy, and the value stays as it was."""
    value = Linear(1, 2)

    assert Linear(1, 5) == value.with_(step="5s")
    assert Linear(1, 2) == value


def test_with_refuses_a_field_that_is_not_there():
    """`with_` refuses a misspelt field as the constructor would."""
    with pytest.raises(TypeError, match="stpe"):
        Linear(1, 2).with_(stpe=3)


def test_the_representation_builds_the_value():
    """Representations of values are expressions that build them."""
    value = Jitter.plus(0.25)

    assert value == eval(repr(value), {"Jitter": Jitter})  # noqa: S307 - our own text


@given(policies())
def test_values_survive_pickling_and_copying(policy: Policy):
    """Every field of a policy survives pickling and copying."""
    assert policy == pickle.loads(pickle.dumps(policy))
    assert policy == copy.deepcopy(policy) == copy.copy(policy)


class Ours(NamedTuple):
    """A tuple."""

    first: int
    second: str = "b"

    @property
    def both(self) -> str:
        """Both fields."""
        return f"{self.first}{self.second}"


class Theirs(typing.NamedTuple):
    """A tuple."""

    first: int
    second: str = "b"


def test_a_named_tuple_is_one_of_the_library():
    """Fields, defaults, documentation and types are those of `typing.NamedTuple`; members and pickling work."""
    names = ("_fields", "_field_defaults", "__doc__", "__module__", "__slots__")

    assert [getattr(Theirs, name) for name in names] == [getattr(Ours, name) for name in names]
    assert typing.get_type_hints(Theirs) == typing.get_type_hints(Ours)
    assert (Theirs(1), "1b", Ours(1)) == (Ours(1), Ours(1).both, pickle.loads(pickle.dumps(Ours(1))))
    with pytest.raises(TypeError, match="first"):
        Ours()  # type: ignore[call-arg]


def test_a_field_without_a_default_comes_first():
    """A default that stands before a field without one is refused, instead of moving to that field."""
    with pytest.raises(TypeError, match="Wrong: a field without a default follows first"):

        class Wrong(NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]
