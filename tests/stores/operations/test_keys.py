"""Taking keys, step by step: cases that occur too rarely in a real database."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.records import KeyUntil, OnConflict
from redrive.errors import DuplicateJob, StoreBusy
from redrive.stores.operations import keys
from redrive.stores.operations.keys import Holder, KeyRequest
from redrive.stores.query import Operation, Statements
from tests.stores.helpers import T0, new, seconds
from tests.stores.operations.conversing import converse, names

MINE = KeyRequest("send", "u", 7)
OTHER = Holder("send", "u", 9, "send", State.READY, debounced=False)


def taking(*wanted: KeyRequest) -> Operation[dict[int, Holder]]:
    """Take unique keys."""

    def steps() -> Statements[dict[int, Holder]]:
        return (yield from keys.take(keys.UNIQUE, wanted))

    return Operation("taking", steps(), writes=True)


def test_a_key_that_was_just_given_back_is_tried_again():
    """If a key was taken at the first try and is free a moment later, the second try takes it."""
    lost, asked = converse(taking(MINE), [], [], [(7,)])

    assert ({}, ["keys_take", "keys_find", "keys_take"]) == (lost, names(asked))


def test_a_key_that_changes_hands_too_quickly_is_given_up():
    """If a key is taken at each try and has no holder after it, the error is retryable."""
    with pytest.raises(StoreBusy, match="take and release the key 'u' too often"):
        converse(taking(MINE), *[[], []] * keys.TRIES)


def test_a_held_key_stays_lost_while_others_are_tried_again():
    """Of two keys, one held and one just released, only the latter is tried again."""
    lost, asked = converse(taking(MINE, KeyRequest("send", "v", 8)), [], [OTHER], [(8,)])

    assert {7: OTHER} == lost
    assert ["v"] == [row["key"] for row in asked[2].many]


def test_keys_are_taken_in_one_order():
    """Keys are taken in the order of their names, whatever the order of the jobs, to prevent deadlocks."""
    _, asked = converse(
        taking(KeyRequest("b", "x", 1), KeyRequest("a", "z", 2), KeyRequest("a", "y", 3)), [(1,), (2,), (3,)]
    )

    assert [("a", "y"), ("a", "z"), ("b", "x")] == [(row["scope"], row["key"]) for row in asked[0].many]


def placing(*numbers: int) -> Operation[dict[int, int]]:
    """Place debounced calls, by default one, as job 7."""
    call = replace(new(), key="u", key_until=KeyUntil.START, on_conflict=OnConflict.BOUNCE, latest=seconds(5))

    def steps() -> Statements[dict[int, int]]:
        return (yield from keys.take_for_new(dict.fromkeys(numbers or (7,), call), T0))

    return Operation("placing", steps(), writes=True)


STARTED = Holder("send", "u", 9, "send", State.READY, debounced=True)


def test_a_burst_delays_the_job_of_a_concurrent_call():
    """If another call takes the key of a started job first, the debounced call postpones that call's job."""
    third = structs.replace(STARTED, job_id=11)
    stands, asked = converse(placing(), [], [STARTED], [], [], [], [], [third], [(11,)], [])

    assert {7: 11} == stands
    assert ["keys_find", "bounce", "payload_put"] == names(asked)[-3:]
    assert 11 == asked[-1].params["job_id"]


def test_a_burst_of_one_batch_is_one_job_where_the_former_has_started():
    """Of two calls in a batch the first takes the key of a job that has started, and represents the second."""
    first = Holder("send", "u", 7, None, None, debounced=False)
    turn = [], [], []
    stands, asked = converse(placing(7, 8), [], [STARTED], *turn, [(7,)], *turn, [], [first])

    assert ({8: 7}, "keys_find") == (stands, names(asked)[-1])


def test_a_debounced_call_is_refused_if_another_kind_of_job_takes_its_key():
    """Refuse a debounced call if the job that took its key is not debounced; the error names that job."""
    third = structs.replace(STARTED, job_id=11, debounced=False)
    with pytest.raises(DuplicateJob, match="held by job 11, which is not debounced"):
        converse(placing(), [], [STARTED], [], [], [], [], [third], [])


def test_a_burst_gives_up_a_key_that_changes_hands_too_quickly():
    """If each holder of the key starts before it can be postponed, the error is retryable."""
    turn = [], [], [], [], [STARTED]
    with pytest.raises(StoreBusy, match="take and release the key 'u' too often"):
        converse(placing(), [], [STARTED], *turn * keys.TRIES)


def test_a_burst_takes_the_key_of_one_that_has_started():
    """Close a job that has started and waits for its retry, and give its key to the next debounced job."""
    stands, asked = converse(placing(), [], [STARTED], [], [], [], [(7,)])

    assert ({}, ["keys_take", "keys_find", "bounce", "supersede", "keys_drop", "keys_take"]) == (stands, names(asked))
    assert 9 == asked[3].many[0]["id"]
