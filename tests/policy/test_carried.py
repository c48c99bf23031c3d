"""The past of a call in the header of its message."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Failure, History, Retry, Stage
from redrive.policy.carried import ATTEMPTS, SIZE, TEXT, Carried, CarriedAttempt
from tests.policy.strategies import START, failures, policies, samples, spans

instants = st.timedeltas(timedelta(0), timedelta(days=80_000)).map(
    lambda since: datetime(1970, 1, 1, tzinfo=UTC) + since
)
texts = st.text("aé\U0001f600", max_size=TEXT)  # of one, two and four bytes
counters = st.lists(st.integers(0, 10**9 + 1), max_size=12).map(tuple)
pasts = st.builds(
    Carried,
    st.builds(History, st.integers(1, 10**6), instants, st.none() | spans, counters),
    st.none() | instants,
    st.integers(0, 5),
    st.lists(
        st.builds(
            CarriedAttempt,
            instants,
            texts,
            texts,
            st.sampled_from(Stage),
            st.sampled_from(["ERROR", "TIMEOUT"]),
            texts,
            st.none() | spans,
        ),
        max_size=ATTEMPTS,
    ).map(tuple),
)


def through_json(past: Carried) -> Carried:
    """Return what another process reads."""
    return Carried.from_dict(json.loads(json.dumps(past.to_dict())))


@given(pasts)
def test_what_decides_is_read_as_it_was_written(past):
    """The history, the due time and the count of lost processes survive a header, whatever else is left out."""
    read = through_json(past)

    assert (past.history, past.due, past.lost) == (read.history, read.due, read.lost)


@given(pasts)
def test_the_oldest_attempts_are_left_out_first(past):
    """A header has at most 8 KiB, and the attempts in it are the last ones, as many as fit."""
    data = past.to_dict()
    kept = through_json(past).attempts

    assert len(json.dumps(data)) <= SIZE
    assert past.attempts[len(past.attempts) - len(kept) :] == kept
    if len(kept) < len(past.attempts):
        more = {**data, "a": [past.attempts[len(past.attempts) - len(kept) - 1].to_list(), *data["a"]]}
        assert len(json.dumps(more)) > SIZE


def test_counters_stay_even_if_nothing_else_fits():
    """Counters are never left out, also if they alone are larger than a header should be."""
    attempt = CarriedAttempt(START, "E", "", Stage.ANSWERED, "ERROR", "backoff")
    read = through_json(Carried(History(3, START, None, (10**9,) * 1000), attempts=(attempt,)))

    assert (10**9,) * 1000 == read.history.by_rule
    assert () == read.attempts


@given(policies(), st.lists(failures, max_size=6), samples)
def test_decisions_are_those_without_a_broker(policy, failed, sample):
    """A policy that reads its history from a header decides in each attempt as one that has kept it."""
    history, now = History(1, START), START
    past = Carried(history)
    for failure in failed:
        decision = policy.decide(history, failure, now, sample)
        assert decision == policy.decide(past.history, failure, now, sample)
        if not isinstance(decision, Retry):
            return
        history = policy.advance(history, failure, decision.delay, now=now, sample=sample)
        past = through_json(
            past._replace(history=policy.advance(past.history, failure, decision.delay, now=now, sample=sample))
        )


def test_an_attempt_keeps_the_beginning_of_its_error():
    """An attempt has the first 200 characters of its error, as text that every serializer accepts."""
    failure = Failure(("builtins.OSError",), "\ud800" + "x" * 300, "TIMEOUT", Stage.IN_FLIGHT)
    attempt = CarriedAttempt.of(failure, START, "backoff", timedelta(seconds=2))

    assert "?" + "x" * 199 == attempt.error
    assert ("builtins.OSError", Stage.IN_FLIGHT, "TIMEOUT", "backoff") == (
        attempt.error_type,
        attempt.stage,
        attempt.reason,
        attempt.rule,
    )
    assert CarriedAttempt.from_list(attempt.to_list()) == attempt


def test_only_the_last_attempts_are_kept():
    """A call of many attempts carries the last twenty of them."""
    past = Carried(History(1, START))
    for number in range(30):
        past = past.followed_by(CarriedAttempt(START, "E", str(number), Stage.ANSWERED, "ERROR", "backoff"))

    assert [str(number) for number in range(10, 30)] == [each.error for each in past.attempts]


GOOD = Carried(History(2, START, timedelta(seconds=1), (1,)), START, 1).to_dict()


@pytest.mark.parametrize("data", [None, [], {}, {**GOOD, "v": 2}, {**GOOD, "v": True}, {**GOOD, "v": "1"}])
def test_another_form_is_refused(data):
    """A header that another version of redrive has written is refused with both versions."""
    with pytest.raises(PolicyValueError, match="reads only the form 1"):
        Carried.from_dict(data)


@pytest.mark.parametrize(
    "change",
    [
        {"n": -1},
        {"n": "1"},
        {"t": "today"},
        {"t": float("nan")},
        {"t": 1e300},
        {"d": []},
        {"r": 7},
        {"r": [1.5]},
        {"due": {}},
        {"lost": None},
        {"a": 7},
        {"a": [7]},
        {"a": [[1, 2]]},
        {"a": [[0, "E", "e", "elsewhere", "ERROR", "backoff", None]]},
    ],
)
def test_a_broken_header_is_refused(change):
    """A header of the right version with other types is refused, and nothing is guessed."""
    with pytest.raises(PolicyValueError, match="cannot be read"):
        Carried.from_dict({**GOOD, **change})


@pytest.mark.parametrize("missing", [name for name in GOOD if name != "v"])
def test_a_header_without_a_key_is_refused(missing):
    """Each key is required."""
    with pytest.raises(PolicyValueError, match=missing):
        Carried.from_dict({name: value for name, value in GOOD.items() if name != missing})
