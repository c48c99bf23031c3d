"""Taking keys, driven by hand: what the databases of the conformance suite are too quick for."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.records import KeyUntil, OnConflict
from redrive.errors import DuplicateJob, StoreBusy
from redrive.stores.operations import keys
from redrive.stores.operations.keys import Holder, Wanted
from redrive.stores.query import Operation, Steps
from tests.stores.helpers import T0, new, seconds
from tests.stores.operations.conversing import converse, names

MINE = Wanted("send", "u", 7)
OTHER = Holder("send", "u", 9, "send", State.READY, debounced=False)


def taking(*wanted: Wanted) -> Operation[dict[int, Holder]]:
    """Take unique keys."""

    def steps() -> Steps[dict[int, Holder]]:
        return (yield from keys.take(keys.UNIQUE, wanted))

    return Operation("taking", steps(), writes=True)


def test_a_key_that_was_just_given_back_is_tried_again():
    """A key that could not be taken, and that nobody holds a moment later, is taken at the second try."""
    lost, asked = converse(taking(MINE), [], [], [(7,)])

    assert ({}, ["keys_take", "keys_find", "keys_take"]) == (lost, names(asked))


def test_a_key_that_changes_hands_too_quickly_is_given_up():
    """A key that is taken at each try, and held by nobody after each, is an error that can be repeated."""
    with pytest.raises(StoreBusy, match="the key 'u' changes hands too quickly"):
        converse(taking(MINE), *[[], []] * keys.TURNS)


def test_what_was_lost_stays_lost_while_others_are_tried_again():
    """Of two keys, one held and one just given back, only the latter is tried again."""
    lost, asked = converse(taking(MINE, Wanted("send", "v", 8)), [], [OTHER], [(8,)])

    assert {7: OTHER} == lost
    assert ["v"] == [row["key"] for row in asked[2].many]


def test_keys_are_taken_in_one_order():
    """Whatever the order of the jobs, keys are taken in the order of their names, so that two never wait crosswise."""
    _, asked = converse(taking(Wanted("b", "x", 1), Wanted("a", "z", 2), Wanted("a", "y", 3)), [(1,), (2,), (3,)])

    assert [("a", "y"), ("a", "z"), ("b", "x")] == [(row["scope"], row["key"]) for row in asked[0].many]


def placing() -> Operation[dict[int, int]]:
    """Place one call of a burst, as job 7."""
    call = replace(new(), key="u", key_until=KeyUntil.START, on_conflict=OnConflict.BOUNCE, latest=seconds(5))

    def steps() -> Steps[dict[int, int]]:
        return (yield from keys.place({7: call}, T0))

    return Operation("placing", steps(), writes=True)


STARTED = Holder("send", "u", 9, "send", State.READY, debounced=True)


def test_a_burst_whose_key_is_snatched_is_refused():
    """Where a third job takes the key of a superseded one before this one can, this one is refused, and names it."""
    third = dataclasses.replace(STARTED, job_id=11)
    answers = [], [STARTED], [], [], [], [], [third]
    with pytest.raises(DuplicateJob, match="held by job 11"):
        converse(placing(), *answers)


def test_a_burst_takes_the_key_of_one_that_has_started():
    """The job that has started and waits once more is closed, and gives its key to the next burst."""
    stands, asked = converse(placing(), [], [STARTED], [], [], [], [(7,)])

    assert ({}, ["keys_take", "keys_find", "bounce", "supersede", "keys_drop", "keys_take"]) == (stands, names(asked))
    assert 9 == asked[3].many[0]["id"]
