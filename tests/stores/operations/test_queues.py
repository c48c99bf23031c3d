"""Queues and floors: steps that are rare in a real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace as changed

from redrive.engine.queue import Due, QueueChange, QueueSettings
from redrive.engine.records import Filter
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs, leases, limited_queues, queues
from redrive.stores.store import Store
from tests.engine.helpers import claim
from tests.stores.helpers import T0, new
from tests.stores.operations.conversing import CLOCK, converse, names


@pytest.fixture
def memory() -> Iterator[Store]:
    """Return a store in memory."""
    store = open_store("memory://")
    yield store
    store.close()


def test_only_plain_queues_with_due_times_set_floors():
    """Only jobs of a plain lane with a known due time set a floor."""
    parted = claim(partition="ann", scheduled_at=T0)
    unknown = claim(scheduled_at=None)
    plain = claim(scheduled_at=T0)

    assert () == leases.advanced((), [parted, unknown])
    assert (leases.LaneCursor("mail", 3, "send", T0, 7),) == leases.advanced((), [plain])


def test_an_unchanged_declaration_writes_nothing(memory: Store):
    """Declaring unchanged queue settings again writes nothing."""
    wanted = {"mail": QueueChange(concurrency=2)}
    memory.run(queues.declare(wanted, now=T0))
    before = memory.run(queues.settings("mail"))
    memory.run(queues.declare(wanted, now=T0))

    assert before == memory.run(queues.settings("mail"))
    assert 2 == before.concurrency


@pytest.mark.parametrize("known", [QueueSettings("mail", concurrency=2), QueueSettings("mail", changed_at=T0)])
def test_a_queue_that_was_changed_meanwhile_is_left_alone(known: QueueSettings):
    """Another worker has declared it since it was read, or an operator has changed it."""
    _, asked = converse(queues.declare({"mail": QueueChange(concurrency=2)}), [], CLOCK, [known])

    assert ["queues_select", "clock", "queue_lock"] == names(asked)


def test_a_declared_pause_stays_as_it_is():
    """The queue has been paused since the first start of a worker with that code."""
    paused = QueueSettings("mail", paused_at=T0)
    _, asked = converse(queues.declare({"mail": QueueChange(paused=True)}), [paused])

    assert ["queues_select"] == names(asked)


def test_forgetting_a_queue_without_settings_is_not_recorded(memory: Store):
    """Resetting a queue without settings changes nothing and writes no audit line."""
    memory.run(queues.forget("mail", now=T0))

    assert QueueSettings("mail") == memory.run(queues.settings("mail"))


def test_jobs_of_one_ordered_partition_are_read_once(memory: Store):
    """Two jobs of the same partition of an ordered queue wait for the same head."""
    memory.run(queues.change("mail", QueueChange(ordered=True), now=T0))
    line = [changed(new(queue="mail"), partition="ann")] * 2
    memory.run(jobs.enqueue(line, now=T0))
    rows = memory.run(admin.select(Filter(oldest_first=True)))
    found = memory.run(queues.circumstances(rows, now=T0))

    assert [1, 1] == [found[row.id].standing.head_id for row in rows]


def test_a_queue_paused_during_the_claim_offers_no_job():
    """Offer no job of a queue that was paused between the read of the due jobs and the read of the queue."""
    offering = limited_queues._offer("mail", 5, T0, None, leases.ClaimFilter(None, None))
    next(offering)
    with pytest.raises(StopIteration) as end:
        offering.send([QueueSettings("mail", paused_at=T0)])

    assert (True, T0) == (end.value.value.full, end.value.value.settings.paused_at)


def test_offered_jobs_that_were_not_taken_cause_no_pause():
    """If other workers are taking the offered jobs, the search continues without a pause."""
    offered = (Due(7, "ann", 3, T0, None),)
    offer = limited_queues.Offer(
        QueueSettings("mail"), jobs=offered, scan=limited_queues.QueueScan("mail", T0, "", "ann")
    )
    steps = limited_queues.next_look(leases.ClaimFilter(None, None), T0, [offer])
    next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.send([limited_queues.QueueDue("mail", T0)])

    assert T0 == ended.value.value
