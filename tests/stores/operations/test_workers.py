"""Workers, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.engine.records import KeyUntil
from redrive.stores.operations import workers
from redrive.stores.operations.workers import Pulse
from tests.stores.helpers import seconds
from tests.stores.operations.conversing import CLOCK, converse, names


@pytest.mark.parametrize(("queues", "expected"), [(None, None), (("a", "b"), ["a", "b"]), ((), [])])
def test_a_worker_is_registered_under_a_new_number(queues: Any, expected: Any):
    """Registering a worker is one statement, which takes an id and writes the worker with its lease."""
    operation = workers.register("host:1", concurrency=4, lease_for=seconds(15), queues=queues, tasks=["a", "b"])
    number, asked = converse(operation, [(9,)])

    assert 9 == number
    assert {
        "salt": None,
        "bits": workers.SALT_BITS,
        "name": "host:1",
        "concurrency": 4,
        "queues": expected,
        "excluded": None,
        "tasks": ["a", "b"],
        "host": None,
        "pid": None,
        "birth": None,
        "lock_id": None,
        "is_locked": False,
        "version": None,
        "build": None,
        "now": None,
        "lease_for": seconds(15),
    } == asked[0].params


def test_stuck_sessions_are_recognised_by_their_silence():
    """End database sessions that were idle in a transaction for too long, and return their number."""
    count, asked = converse(workers.end_stuck(), [(71, True), (72, True)])

    assert (2, {"silent_for": seconds(5)}) == (count, asked[0].params)


@pytest.mark.parametrize("rows", [[(5,)], []])
def test_a_heartbeat_returns_lease_end_and_leases(rows: list[Any]):
    """Heartbeats return whether the worker is registered, its leases, and what operators ask of their runs."""
    pulse, asked = converse(workers.beat(5, seconds(15)), rows, [(11, None), (12, "pause")])

    assert Pulse(bool(rows), frozenset({11, 12}), {12: "pause"}) == pulse
    assert ["heartbeat", "leases_of"] == names(asked)


def test_a_heartbeat_with_a_zero_extension_runs_no_query():
    """Heartbeats that extend by no time are refused before any query."""
    with pytest.raises(ValueError, match="got 0:00:00"):
        next(workers.beat(5, seconds(0)).steps)


def test_leaving_releases_jobs_first():
    """Leaving workers release their jobs first and are then removed."""
    released = [workers.ReleasedJob(1, "send", None, None), workers.ReleasedJob(2, "send", "u", KeyUntil.END)]
    given, asked = converse(workers.leave(5), CLOCK, released, [])

    assert [1, 2] == given
    assert ["clock", "worker_release", "worker_stop"] == names(asked)
    assert "worker 5 shut down" == asked[1].params["note"]


def test_leaving_restores_keys():
    """Jobs that released their key at their start take it again when their worker leaves."""
    released = [workers.ReleasedJob(1, "send", "u", KeyUntil.START)]
    _, asked = converse(workers.leave(5), CLOCK, released, [(1,)], [])

    assert [{"kind": "unique", "scope": "send", "key": "u", "job_id": 1}] == asked[2].many


def test_reported_errors_and_longer_timeouts_are_one_statement_each():
    """Statements for them name the worker, and the attempt by its lease."""
    _, asked = converse(workers.report(5, "settling: KeyError"), [])
    _, longer = converse(workers.prolong(7, 41, seconds(9)), [])

    assert ("worker_trouble", {"id": 5, "trouble": "settling: KeyError"}) == (asked[0].name, asked[0].params)
    assert {"job_id": 7, "lease_id": 41, "timeout_for": seconds(9)} == longer[0].params
