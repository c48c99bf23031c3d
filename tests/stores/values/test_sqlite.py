"""Values in SQLite."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.frozen import UnreadablePolicy, freeze
from redrive.engine.lifecycle import State
from redrive.policy import Policy
from redrive.stores.values import sqlite as values
from redrive.stores.values.sqlite import decoder, encode, from_micros, pairs, to_micros

INSTANTS = st.datetimes(timezones=st.just(UTC))
SPANS = st.timedeltas(timedelta(-(10**5)), timedelta(10**5))


@dataclass(frozen=True)
class Record:
    """A record with one field of each kind."""

    name: str
    count: int
    at: datetime
    after: timedelta
    state: State
    numbers: tuple[int, ...]
    policy: Policy
    payload: bytes
    flag: bool
    maybe_at: datetime | None
    maybe_state: State | None
    maybe_names: tuple[str, ...] | None


COLUMNS = tuple(Record.__annotations__)
POLICY = Policy.parse("5 1s").durable()
ROW = ("a", 7, 1_000_000, 1_500_000, "ready", "[1,2]", freeze(POLICY).document, b"x", 1, None, None, None)


@given(INSTANTS)
def test_an_instant_survives(instant: datetime):
    """Instants are written as whole microseconds and read back unchanged."""
    assert instant == from_micros(to_micros(instant))


@given(INSTANTS, INSTANTS)
def test_instants_keep_their_order(one: datetime, other: datetime):
    """Stored numbers compare in the same order as the instants."""
    assert (one < other) == (to_micros(one) < to_micros(other))


def test_an_instant_of_another_zone_is_the_same_instant():
    """Aware instants are written in UTC, whatever their zone."""
    tokyo = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))

    assert to_micros(datetime(2026, 1, 1, tzinfo=UTC)) == to_micros(tokyo)
    assert UTC == from_micros(to_micros(tokyo)).tzinfo


def test_an_instant_without_a_zone_is_refused():
    """Refuse to write a naive instant."""
    with pytest.raises(TypeError):
        to_micros(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the fault


def test_parameters_are_written_by_their_types():
    """Instants and durations become microseconds, lists become JSON, and other values stay unchanged."""
    params = {
        "at": datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC),
        "after": timedelta(seconds=2, microseconds=7),
        "ids": [1, 2],
        "names": ["ü", 'a"b'],
        "none": None,
        "text": "x",
        "number": 3,
        "payload": b"\x00",
        "state": State.READY,
        "flag": True,
    }
    expected = params | {"at": 1_000_005, "after": 2_000_007, "ids": "[1,2]", "names": '["ü","a\\"b"]'}

    assert expected == encode(params)


def test_numbers_and_their_texts_are_written_together(monkeypatch: pytest.MonkeyPatch):
    """Numbers with JSON become one object, or several where it would be too large."""
    many = [{"job_id": 1, "payload": b'["\xc3\xbc"]'}, {"job_id": 2, "payload": b"22"}, {"job_id": 3, "payload": b"3"}]

    assert ['{"1":"[\\"ü\\"]","2":"22","3":"3"}'] == list(pairs(many))
    monkeypatch.setattr(values, "MOST", 8)
    assert ['{"1":"[\\"ü\\"]","2":"22"}', '{"3":"3"}'] == list(pairs(many))
    assert [] == list(pairs([]))


@given(SPANS)
def test_a_span_survives(span: timedelta):
    """Durations are written as whole microseconds and read back unchanged."""
    (micros,) = encode({"after": span}).values()

    assert span == timedelta(microseconds=micros)


def test_a_row_becomes_a_record():
    """Each column is read by the type of the field of its name, and NULL is None."""
    expected = Record(
        name="a",
        count=7,
        at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        after=timedelta(seconds=1.5),
        state=State.READY,
        numbers=(1, 2),
        policy=POLICY,
        payload=b"x",
        flag=True,
        maybe_at=None,
        maybe_state=None,
        maybe_names=None,
    )

    assert [expected] == decoder(Record, COLUMNS)([ROW])


def test_optional_columns_are_read_where_they_are_there():
    """Nullable columns are decoded by their type unless they are NULL."""
    (bare, full) = decoder(Record, COLUMNS)([ROW, (*ROW[:9], 2_000_000, "dead", '["a"]')])

    assert (None, None, None) == (bare.maybe_at, bare.maybe_state, bare.maybe_names)
    assert (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), State.DEAD, ("a",)) == (
        full.maybe_at, full.maybe_state, full.maybe_names,
    )  # fmt: skip


def test_columns_may_come_in_any_order():
    """Columns are found by their names, not by their positions."""
    assert decoder(Record, COLUMNS)([ROW]) == decoder(Record, COLUMNS[::-1])([ROW[::-1]])


def test_a_statement_that_lacks_a_column_fails_at_once():
    """Decoders for a statement that lacks a column of the record cannot be created, before any row is read."""
    with pytest.raises(ValueError, match="not in tuple"):
        decoder(Record, COLUMNS[1:])


def test_a_policy_that_cannot_be_read_does_not_stop_its_row():
    """Rows with a policy that this redrive cannot read are read and marked."""
    row = tuple('{"version":2}' if name == "policy" else value for name, value in zip(COLUMNS, ROW, strict=True))

    (record,) = decoder(Record, COLUMNS)([row])

    assert isinstance(record.policy, UnreadablePolicy)


def test_no_rows_are_no_records():
    """Decoding an empty result returns no records."""
    assert [] == decoder(Record, COLUMNS)([])
