"""Which jobs a person means."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.records import NEWEST, Filter, Hold
from redrive.errors import ConfigurationError


def test_an_empty_filter_selects_the_newest_hundred_jobs():
    """Without conditions a filter asks for a hundred jobs of any kind, the newest first; a change needs a condition."""
    empty = Filter()

    assert (None, None, None, None, None, None, None) == (
        empty.ids, empty.state, empty.task, empty.queue, empty.reason, empty.error, empty.caught,
    )  # fmt: skip
    assert (0, False, 100) == (empty.after_id, empty.oldest_first, empty.most)
    with pytest.raises(ConfigurationError, match="no condition"):
        empty.for_changes()


def test_a_change_without_a_limit_means_all_jobs_that_match():
    """A limit is obeyed."""
    assert NEWEST == Filter(task="send").for_changes().most
    assert 7 == Filter(task="send", limit=7).for_changes().most


def test_a_filter_is_a_value():
    """Equal filters are equal and hash alike, and none can be changed."""
    assert {Filter(task="send")} == {Filter(task="send"), Filter(task="send")}
    with pytest.raises(AttributeError):
        Filter().limit = 5


def test_a_state_and_a_hold_may_be_texts():
    """They are converted; what is neither is refused, instead of matching no job."""
    filtered = Filter(state="dead", hold="snooze")  # type: ignore[arg-type]

    assert (State.DEAD, Hold.SNOOZE) == (filtered.state, filtered.hold)
    assert {State, Hold} == {type(filtered.state), type(filtered.hold)}
    with pytest.raises(ConfigurationError, match="state is 'ready', .*, not 'dread'"):
        Filter(state="dread")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="hold is 'delay', .*, not 'lunch'"):
        Filter(hold="lunch")  # type: ignore[arg-type]
