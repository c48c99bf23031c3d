"""Which jobs a person means."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from redrive.engine.select import Filter


def test_an_empty_filter_means_the_newest_hundred():
    """Without conditions a filter asks for a hundred jobs of any kind, the newest first."""
    empty = Filter()

    assert (None, None, None, None, None, None, None) == (
        empty.ids, empty.state, empty.task, empty.queue, empty.reason, empty.error, empty.caught,
    )  # fmt: skip
    assert (0, False, 100) == (empty.after_id, empty.oldest_first, empty.limit)


def test_a_filter_is_a_value():
    """Equal filters are equal and hash alike, and none can be changed."""
    assert {Filter(task="send")} == {Filter(task="send"), Filter(task="send")}
    with pytest.raises(FrozenInstanceError):
        Filter().limit = 5
