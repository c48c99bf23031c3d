"""Tests of `redrive.policy.decision`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.policy import Defer, GiveUp, History, Retry
from tests.policy.strategies import START


@pytest.mark.parametrize(
    "value",
    [History(1, START), Retry(timedelta(0), timedelta(0), "backoff"), Defer(START, "hint"), GiveUp("why", "attempts")],
)
def test_decisions_are_frozen(value: object):
    """Neither a history nor a decision can be changed."""
    with pytest.raises(AttributeError):
        value.rule = "other"


def test_a_first_failure_has_an_empty_history():
    """A history needs only the number of attempts and the start."""
    assert (1, START, None, ()) == History(attempts=1, started_at=START)
