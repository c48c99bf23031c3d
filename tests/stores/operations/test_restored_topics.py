"""Restored databases, with answers that only PostgreSQL gives."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.engine.topics import Shard
from redrive.errors import TopicsRestored
from redrive.stores.operations.topics import cluster
from redrive.stores.operations.topics.cluster import Cluster
from redrive.stores.query import Query, Statements, reads
from tests.stores.operations.conversing import CLOCK, converse, names

HERE = Cluster("this server", 100, 99, "another server")
SHARD = Shard("pay", "log", 0, 1, 0, 0, "5:5:", None, None, 0, 0, [], 0, None, None)
OTHER = Shard("pay", "log", 1, 2, 0, 0, "5:5:", None, None, 0, 0, [], 0, None, None)


@reads
def checked() -> Statements[None]:
    """Check the identity."""
    yield from cluster.check()


def test_another_server_without_cursors_is_accepted():
    """Restored databases without subscriptions have no cursor that could skip events."""
    _, asked = converse(checked(), [HERE], [], [])

    assert ["cluster", "shards_of", "meta_put"] == names(asked)


def test_another_server_with_cursors_is_refused():
    """Restored cursors are refused."""
    steps = checked().steps
    next(steps)
    steps.send([HERE])
    with pytest.raises(TopicsRestored):
        steps.send([SHARD])


def test_shards_of_a_topic_have_one_edge():
    """Cursors of one topic are put behind the same transaction id, which is read once."""
    answers: list[Any] = [CLOCK, [HERE], [SHARD, OTHER]]
    answers += [[SHARD, OTHER], [(4,)], [SHARD, OTHER], [(None,)], [("pay",)], [(0, 0, None)]]
    answers += [[("100:100:",)], [], [], [], [], []]
    done, asked = converse(cluster.rebase(), *answers)

    assert ((SHARD, 4), (OTHER, None)) == done
    assert 1 == names(asked).count("topic_edge")
    moved = [each.params["at_id"] for each in asked if isinstance(each, Query) and each.name == "shard_rebase"]
    assert [3, 0] == moved
