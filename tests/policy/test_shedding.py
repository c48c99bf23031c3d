"""Tests of client-side throttling, and of the filter of answers."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError, RetryAfter
from redrive.policy import Failure
from redrive.policy.budget import SlidingCounts
from redrive.policy.overload import Adaptive, Answers, Shedding

BOTH = [Shedding, Adaptive]


def test_requests_outside_of_the_window_are_forgotten():
    """After the window a client that was refused everything refuses nothing itself."""
    ledger = Shedding(window="10s").open()
    for _ in range(100):
        ledger.asked(0)

    assert 100 / 101 == ledger.rejection(9)
    assert 0 == ledger.rejection(10)


@given(st.integers(0, 500), st.integers(0, 500), st.floats(1, 10))
def test_a_rejection_is_a_probability(requests, accepts, multiple):
    """Whatever was seen, the rejection lies between 0 and 1, and is 0 while enough is accepted."""
    ledger = Shedding(multiple).open()
    for _ in range(requests):
        ledger.asked(0)
    for _ in range(accepts):
        ledger.accepted(0)

    assert 0 <= ledger.rejection(0) < 1
    assert (requests > multiple * accepts) == (ledger.rejection(0) > 0)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=50))
def test_a_window_counts_recent_requests(steps):
    """Windows count whole tenths of their length."""
    window, now, seen = SlidingCounts(10), 0.0, []
    for wait, first, second in steps:
        now += wait
        window.add(now, first=first, second=second)
        seen.append((now, first, second))

    young = [each for each in seen if int(each[0]) > int(now) - 10]
    assert (sum(each[1] for each in young), sum(each[2] for each in young)) == (window.first, window.second)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Shedding, {"multiple": 0.5}),
        (Shedding, {"multiple": -1}),
        (Shedding, {"window": 0}),
        (Shedding, {"refusals": ()}),
        (Shedding, {"on_result": 503}),
        (Adaptive, {"throttles": ()}),
        (Adaptive, {"throttles": "not a name"}),
        (Adaptive, {"on_result": 429}),
        (Adaptive, {"cost": 0}),
        (Adaptive, {"retry_cost": -5}),
        (Adaptive, {"beta": 1}),
        (Adaptive, {"beta": 0}),
        (Adaptive, {"scale": 0}),
    ],
    ids=str,
)
def test_invalid_numbers_are_refused(kind, fields):
    """Settings outside of their range are refused."""
    with pytest.raises(PolicyValueError):
        kind(**fields)


@pytest.mark.parametrize("kind", BOTH)
def test_settings_are_values(kind):
    """Settings are equal to their copies, and travel by pickle."""
    assert kind() == pickle.loads(pickle.dumps(kind()))
    assert kind(on_result=bool) != kind()


def test_errors_are_classified():
    """Names match over the whole class tree and in groups; functions return a reason, a failure, or True."""
    by_name = Answers(OSError, None, "refusals")
    groups = ExceptionGroup("", [ValueError(), TimeoutError()])
    assert [True, True, False] == [by_name.has_error(error) for error in (ConnectionError(), groups, ValueError())]
    assert [True, False] == [
        Answers("RETRY_AFTER", None, "refusals").has_error(error) for error in (RetryAfter("1s"), RetryAfter("soon"))
    ]
    answers = [True, False, None, "THROTTLED", "TIMEOUT", Failure((), reason="RETRY_AFTER"), Failure(())]
    assert [True, False, False, True, False, True, False] == [
        Answers(lambda _, answer=answer: answer, None, "refusals").has_error(ValueError()) for answer in answers
    ]


def test_results_are_classified():
    """Without a function for results none is a refusal."""
    assert [False, True, False] == [
        Answers(OSError, None, "refusals").has_result(503),
        Answers(OSError, lambda status: status == 503, "refusals").has_result(503),
        Answers(OSError, lambda status: status == 503, "refusals").has_result(200),
    ]
