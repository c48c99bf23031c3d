"""Operations that answer the rows of one query."""

from __future__ import annotations

import pytest

from redrive.errors import InstanceNotFound
from redrive.stores.operations import jobs
from redrive.stores.operations.machines import rows
from redrive.stores.operations.topics import feed
from tests.stores.operations.conversing import converse


def test_documents_are_read_by_job():
    """Arguments are answered by the ids of the jobs that have some."""
    rows = [(3, "payload", b"{}")]
    expected = {3: jobs.Documents(b"{}", all=(b"{}",)), 4: jobs.Documents()}
    assert expected == converse(jobs.documents({3: None, 4: None}), rows)[0]


def test_feeders_are_counted_by_worker():
    """Feeders are answered by the ids of the workers that run them."""
    assert {1: 2} == converse(feed.feeders("clicks.loose", "default"), [(1, 2)])[0]


def test_an_unknown_instance_is_not_deleted():
    """The lock of an instance that does not exist raises an error that names it."""
    steps = rows.lock_deleted("payment", "42")
    next(steps)
    with pytest.raises(InstanceNotFound, match="42"):
        steps.send([])
