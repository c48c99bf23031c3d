"""Places in the list of error groups."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.stores.operations.counters import ErrorGroup, read_place

AT = datetime(2026, 3, 1, 6, tzinfo=UTC)


def test_the_place_of_a_group_is_read_again():
    """A group's place has its last failure and its fingerprint."""
    group = ErrorGroup(
        fingerprint="1-0",
        task="charge",
        reason="",
        type="",
        title="",
        frame="",
        first_at=AT,
        last_at=AT,
        last_job_id=1,
        muted_at=None,
        muted_until=None,
        dead=0,
        hours=[],
        deaths=0,
    )

    assert (AT, "1-0") == read_place(group.place)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-03-01T07:00:00 01:00/1-0", (AT, "1-0")),
        ("2026-03-01T06:00:00/1-0", None),
        ("0001-01-01T00:00:00+01:00/1-0", None),
        ("7", None),
        ("", None),
    ],
)
def test_texts_that_are_no_places(text, found):
    """A place has an instant with an offset, also where a URL has made a space of its plus sign."""
    assert found == read_place(text)
