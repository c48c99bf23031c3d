"""Answers to attempts with unexpected rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.frozen import UnreadablePolicy
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.settle import decide
from redrive.errors import LeaseLost, StoreError
from redrive.stores.operations import attempts
from tests.engine.helpers import claim as a_claim
from tests.engine.helpers import job as a_job
from tests.stores.helpers import T0, failed, seconds
from tests.stores.operations.conversing import CLOCK, converse, names

CLAIM = a_claim()
WAITING = a_job(id=7, state=State.WAITING, lease_id=CLAIM.lease_id, scheduled_at=T0 + seconds(60))


def test_a_completion_needs_no_policy():
    """Completing an attempt does not need a readable policy."""
    operation = attempts.complete(7, CLAIM.lease_id, Succeeded(), 0.0)
    odd = replace(CLAIM, policy=UnreadablePolicy("no version 2"))
    answered, asked = converse(operation, CLOCK, [odd], [WAITING], [(CLAIM.lease_id,)])

    assert State.SUCCEEDED == answered.state
    assert ["clock", "open_attempt", "job_get", "settle"] == names(asked)


def test_a_failure_needs_its_policy():
    """Failing an attempt needs a readable policy, since a newer redrive may be able to decide it."""
    operation = attempts.complete(7, CLAIM.lease_id, failed(), 0.0)

    with pytest.raises(StoreError, match="cannot be read by this redrive"):
        converse(operation, CLOCK, [replace(CLAIM, policy=UnreadablePolicy("no version 2"))], [WAITING])


def test_an_attempt_that_ends_during_its_answer_is_read_again():
    """If another writer ends the attempt between the read and the write, the answer reads it again."""
    operation = attempts.complete(CLAIM.id, CLAIM.lease_id, Succeeded(b"1"), 0.0)
    line = decide(CLAIM, failed("boom"), T0, 0.0).closed
    ended = a_job(id=7, state=State.READY)

    with pytest.raises(LeaseLost, match="failed: boom"):
        converse(operation, CLOCK, [CLAIM], [WAITING], [], [ended], [line])


def test_an_unreadable_policy_waits_for_a_newer_worker():
    """Waits with an unreadable policy are set aside undecided when they end; the others are decided."""
    operation = attempts.expire_waits(2, [0.0, 0.0])
    odd = replace(CLAIM, policy=UnreadablePolicy("no version 2"), lease_id=CLAIM.lease_id + 1)
    moved, asked = converse(operation, CLOCK, [odd, CLAIM], [(odd.lease_id,)], [(CLAIM.lease_id,)], [])

    assert [odd.lease_id, CLAIM.lease_id] == [each.lease_id for each in moved]
    assert ["set_aside", "settle"] == names(asked)[2:4]
