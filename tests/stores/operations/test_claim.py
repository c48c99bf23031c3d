"""Claiming, step by step: the statements, their order, and the use of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.engine.frozen import UnreadablePolicy
from redrive.engine.lease import UNKNOWN_TASK_DELAY
from redrive.engine.records import Hold
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Claimed, NextDue, parameters
from redrive.stores.query import DRAWN, Operation
from tests.engine.helpers import claim
from tests.stores.helpers import T0, seconds
from tests.stores.operations.conversing import converse, names


def claiming(count: int = 2, **options: Any) -> Operation[Claimed]:
    """Return the operation that claims for worker 5."""
    return leases.claim(5, count, lease_for=seconds(15), **options)


@pytest.mark.parametrize(("due", "rest"), [(None, None), (T0 + seconds(9), seconds(9))])
def test_a_claim_without_due_jobs_writes_nothing(due: object, rest: object):
    """Claims that find no due job take no lease and write no heartbeat."""
    answer, asked = converse(claiming(), [NextDue(T0, due)])

    assert Claimed((), rest) == answer
    assert ["next_due"] == names(asked)


def test_a_claim_writes_heartbeat_and_leases_together():
    """Heartbeat, leases for the wanted number of jobs, and claim are one batch."""
    got = [claim(id=2, lease_id=11), claim(id=1, lease_id=12)]
    where = {"queues": ["q"], "excluded": None, "tasks": ["send"], **parameters(())}
    answer, asked = converse(claiming(3, queues=["q"], tasks={"send"}), [NextDue(T0, T0)], got)

    assert Claimed((got[1], got[0]), seconds(0)) == answer
    assert ["next_due", "worker_beat", "take", "claim"] == names(asked)
    beat, block, taken = asked[1].queries
    assert {"id": 5, "now": T0, "expires_at": T0 + seconds(15)} == beat.params
    assert {"name": "lease", "count": 3} == block.params
    assert {**where, "now": T0, "count": 3, "worker_id": 5, "salt": DRAWN} == taken.params
    assert {**where, "now": None} == asked[0].params


@pytest.mark.parametrize(
    ("due", "rest"), [(T0 - seconds(1), leases.CONTENDED), (T0 + seconds(9), seconds(9)), (None, None)]
)
def test_jobs_locked_by_other_workers_cause_no_busy_wait(due: object, rest: object):
    """If other workers have locked all due jobs, the claimer pauses briefly, or until the next due time."""
    answer, asked = converse(claiming(), [NextDue(T0, T0)], [], [(5,)], [NextDue(T0, due)])

    assert Claimed((), rest, soon=rest == leases.CONTENDED) == answer
    assert ["next_due", "worker_beat", "take", "claim", "worker_beat", "next_due"] == names(asked)


def test_a_claim_reports_that_the_worker_was_removed():
    """If a claim gets none of the due jobs, it reports whether the worker is still registered."""
    answer, asked = converse(claiming(), [NextDue(T0, T0)], [], [])

    assert Claimed((), None, known=False) == answer
    assert "worker_beat" == asked[-1].name


def test_a_claim_releases_unreadable_jobs():
    """Claimed rows with an unreadable policy are released by the same operation; the others are returned."""
    odd, good = claim(id=1, lease_id=11, policy=UnreadablePolicy("no version 2")), claim(id=2, lease_id=12)
    answer, asked = converse(claiming(), [NextDue(T0, T0)], [odd, good], [(11,)])

    assert ((good,), seconds(0)) == (answer.claims, answer.rest_for)
    assert [(1, Hold.BAD_POLICY)] == [(held.job_id, held.hold) for held, _ in answer.held]
    assert ("settle", 1, 11, "ready", T0 + UNKNOWN_TASK_DELAY) == (
        asked[-1].name, *(asked[-1].many[0][name] for name in ("job_id", "lease_id", "state", "scheduled_at")),
    )  # fmt: skip
