"""The filter language of the job list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.operate.filters import WORDS, FilterError, parse, write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Filter()),
        ("  ", Filter()),
        ("70412", Filter(ids=(70412,))),
        ("id:1,2,3", Filter(ids=(1, 2, 3))),
        ("state:dead task:charge", Filter(state=State.DEAD, task="charge")),
        ('error:"timed out"  queue:mail', Filter(error="timed out", queue="mail")),
        ("hold:retry reason:TIMEOUT tag:a:b", Filter(hold=Hold.RETRY, reason="TIMEOUT", tag="a:b")),
        ("state:dead caught:no", Filter(state=State.DEAD, caught=False)),
        ("skipped:yes", Filter(skipped=True)),
    ],
)
def test_filters_are_read(text: str, expected: Filter):
    """All conditions of a filter hold together."""
    assert expected == parse(text)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("state:broken", 0, "state: is one of ready, running"),
        ("task:a stat:dead", 7, "stat: is not a word of the filter; state: is one"),
        ("task:a task:b", 7, "task: is given twice"),
        ("timed out", 0, "write args:timed"),
        ("task:", 0, "task: has no value"),
        ('task:""', 0, "task: has no value"),
        ('error:"open', 0, "expected word:value"),
        ("id:1,x", 0, "id: is a number"),
        ("id:99999999999999999999", 0, "id: is a number"),
        ("caught:maybe", 0, "caught: is yes or no"),
        ("x" * 2001, 2000, "at most 2000 characters"),
    ],
)
def test_wrong_filters_are_refused_with_the_place(text: str, place: int, message: str):
    """No condition is ignored."""
    with pytest.raises(FilterError, match=message.replace("(", r"\(")) as caught:
        parse(text)

    assert place == caught.value.place
    assert caught.value.caret.endswith("\n" + " " * place + "^")


TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters='"', exclude_categories=("Z", "C")), min_size=1, max_size=20
)


@given(
    st.builds(
        Filter,
        state=st.none() | st.sampled_from(State),
        hold=st.none() | st.sampled_from(Hold),
        task=st.none() | TEXT,
        queue=st.none() | st.tuples(TEXT, TEXT).map(" ".join),
        error=st.none() | TEXT,
        caught=st.none() | st.booleans(),
        skipped=st.none() | st.booleans(),
        ids=st.none() | st.lists(st.integers(0, 10**17), min_size=1, max_size=3).map(tuple),
    )
)
def test_written_filters_are_read_back(where: Filter):
    """Filters that were written are the same filter again."""
    assert where == parse(write(where))


@given(st.text(max_size=60) | st.lists(st.sampled_from([*WORDS, ":", '"', " ", "dead", "1"]), max_size=12).map("".join))
def test_any_text_is_read_or_refused(text: str):
    """Filters are read or refused with a place inside of them."""
    place = 0
    try:
        parse(text)
    except FilterError as error:
        place = error.place

    assert 0 <= place <= len(text)
