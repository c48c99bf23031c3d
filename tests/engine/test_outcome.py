"""What an attempt can end with."""

from __future__ import annotations

import inspect
import typing

import pytest

from redrive.engine import outcome
from redrive.engine.outcome import NextRefresh, Outcome, Released, RunChange, Settlement, Succeeded
from redrive.engine.records import Hold
from tests.engine.helpers import seconds


def test_every_kind_of_outcome_belongs_to_the_union():
    """Every outcome of the module belongs to the union that `decide` matches on."""
    kinds = {each for each in vars(outcome).values() if inspect.isclass(each) and each.__module__ == outcome.__name__}

    assert kinds - {Settlement, RunChange, NextRefresh} == set(typing.get_args(Outcome))


def test_an_outcome_is_a_value():
    """Equal outcomes are equal, and none can be changed on its way to the store."""
    ended = Succeeded(b"1")

    assert Succeeded(b"1") == ended
    with pytest.raises(AttributeError):
        ended.result = b"2"


def test_a_release_is_claimable_at_once_by_default():
    """By default a released job can be claimed at once."""
    assert (seconds(0), Hold.RELEASE) == (Released("shutdown").delay, Released("shutdown").hold)
