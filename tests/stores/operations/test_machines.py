"""Operations on machines, step by step: contention that no test can time, and rows that are missing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.machine import InstanceRecord, InstanceStatus
from redrive.engine.origin import Kind, Origin, OriginResult
from redrive.engine.records import JobRecord
from redrive.errors import IllegalMove, MachineBusy
from redrive.stores.operations import redriving
from redrive.stores.operations.jobs import NumberBlock
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines import send as sending
from redrive.stores.operations.machines.finish import finish_all
from redrive.stores.operations.machines.rows import MachineEvent, MaybeLocked, Start
from redrive.stores.operations.machines.send import Busy, SentStatus
from redrive.stores.operations.redriving import JobFamily
from redrive.stores.query import Statements, writes
from tests.engine.helpers import job
from tests.stores.helpers import T0, new
from tests.stores.operations.conversing import CLOCK, converse, names

INSTANCE = InstanceRecord(
    "payment",
    "a",
    "created",
    "paid",
    InstanceStatus.FAILED,
    7,
    "Paid",
    1,
    T0,
    T0,
    None,
    None,
    None,
    None,
    "no",
    None,
    None,
)
"""An instance with a failed transition, job 7."""

FREE = replace(INSTANCE, status=InstanceStatus.RUNNING, to_state=None, job_id=None, event=None, error=None)

EVENT = MachineEvent("payment", "a", "Paid", b"{}", "x")


def as_read(instance: InstanceRecord, *, locked: bool) -> MaybeLocked:
    """Return an instance as a sender reads it."""
    return MaybeLocked(**{name: getattr(instance, name) for name in instance.__struct_fields__}, locked=locked)


DEAD = job(state=State.DEAD, reason="ERROR", finished_at=T0, origin="machine:payment/a")


def test_an_instance_that_was_created_in_between_is_locked():
    """Senders with an insert of an instance that meets another one lock that, and choose again."""
    start = Start("paid", new())
    block = [NumberBlock(T0, 7, 7)]
    operation = sending.send(EVENT, lambda _: start)
    sent, asked = converse(operation, block, [], [], [as_read(FREE, locked=True)], [])

    assert ("created", "paid") == (sent.from_state, sent.to_state)
    assert ["gate", "instance_lock_idle", "instance_insert", "instance_lock_idle"] == names(asked)[:4]


def test_an_instance_that_became_busy_before_the_lock_is_read_again():
    """Rows that are idle and not locked are older than the transition that has begun since, and are read again."""
    running = replace(INSTANCE, status=InstanceStatus.RUNNING, error=None)
    operation = sending.send(EVENT, lambda _: Start("paid", new()), busy=Busy.DROP)
    sent, asked = converse(
        operation, [NumberBlock(T0, 8, 8)], [as_read(FREE, locked=False)], [as_read(running, locked=False)]
    )

    assert (SentStatus.DROPPED, "created") == (sent.status, sent.from_state)
    assert ["gate", "instance_lock_idle", "instance_lock_idle"] == names(asked)


def test_a_changed_instance_is_not_acted_on():
    """Actions on an instance that has changed between its reading and its lock are refused."""
    with pytest.raises(MachineBusy, match="'a' has just changed: repeat the command"):
        converse(manage.skip("payment", "a"), CLOCK, [INSTANCE], [], [replace(INSTANCE, job_id=8)])


def test_a_transition_without_its_event_is_skipped():
    """Skipping works although the row of the event is missing."""
    _, asked = converse(manage.skip("payment", "a"), CLOCK, [INSTANCE], [], [INSTANCE], [], [], [], [], [])

    assert "move_end" not in names(asked)


ALONE = JobFamily(7, catching=False, twin=False, pointless=False)


def test_a_locked_transition_is_not_started_again():
    """Jobs that another transaction has locked are left alone."""
    with pytest.raises(IllegalMove, match="job 7 is locked by another transaction"):
        converse(redriving.retry(7), CLOCK, [DEAD], [ALONE], [], [INSTANCE])


def test_a_catch_job_is_started_again_under_its_instance():
    """Catch jobs of a failed transition run again, and the instance stays failed until they end."""
    catch: JobRecord = replace(DEAD, id=9, parent_id=7)
    _, asked = converse(redriving.retry(9), CLOCK, [catch], [replace(ALONE, id=9)], [catch], [INSTANCE], [(9,)], [], [])

    assert "instance_put" not in names(asked)


ENDED = OriginResult(Origin(Kind.MACHINE, "payment", "a"), 7, succeeded=False, dead=True, why="no")


@pytest.mark.parametrize("has_catch", [True, False])
def test_an_end_without_its_event_is_written(has_catch: bool):
    """Ends of transitions without their event change the instance alone."""

    @writes
    def end() -> Statements[None]:
        yield from finish_all([replace(ENDED, has_catch=has_catch)], T0)

    running = replace(INSTANCE, status=InstanceStatus.RUNNING, error=None)
    _, asked = converse(end(), [running], [], [])
    assert ["instances_lock", "moves_these", "instance_put"] == names(asked)


def test_an_instance_that_was_deleted_at_once_is_inserted_again():
    """Senders that neither hold nor insert the instance, because another one did both at once, try again."""
    steps = sending._wait(EVENT, 9, T0)
    asked = [next(steps).name, *(steps.send([]).name for _ in range(3))]

    assert ["instance_hold", "instance_insert", "instance_hold", "instance_insert"] == asked
