"""Crons that are created, replaced and deleted at run time."""

from __future__ import annotations

import pytest

from redrive.engine.occurrence import OccurrenceDecision
from redrive.engine.recurring import Overlap
from redrive.errors import ScheduleError, ScheduleNotFound
from redrive.stores.operations import audit, crons, schedules
from tests.stores.helpers import T0, Harness
from tests.stores.recurring import HALF, HOUR, Clockwork, cron, keeping, made


def audited(clockwork: Clockwork) -> list[tuple[str, str]]:
    """Return the entries of the audit log, the first one first."""
    return [(each.actor, each.action) for each in reversed(clockwork.do(audit.audit()))]


def test_a_created_cron_is_stored_and_marked(store: Harness):
    """Created crons have the mark, their definition and their next occurrence."""
    clockwork = Clockwork(store)
    row = clockwork.create(cron())
    (status,) = clockwork.do(schedules.status(now=T0))

    assert (True, cron(), HALF, T0) == (row.created, row.definition, row.next_at, row.declared_at)
    assert (True, HALF) == (status.created, status.due_at)
    assert row == clockwork.schedule()
    assert [("amy", "create")] == audited(clockwork)


def test_a_created_cron_fires_once_per_occurrence(store: Harness):
    """Each occurrence makes one job with the payload of the cron, however often it is fired."""
    clockwork = Clockwork(store)
    clockwork.create(cron())
    clockwork.until(HALF)

    assert [(HALF, OccurrenceDecision.STARTED)] == clockwork.fired()
    assert [] == clockwork.fired()
    assert ["do"] == [each.task for each in store.jobs()]
    assert HALF + HOUR == clockwork.schedule().next_at


def test_the_same_cron_is_created_once(store: Harness):
    """Creation with the same values changes nothing, not even the audit log."""
    clockwork = Clockwork(store)
    row = clockwork.create(cron())
    store.wait(60)

    assert row == clockwork.create(cron())
    assert [("amy", "create")] == audited(clockwork)


def test_other_values_replace_a_created_cron_on_demand_only(store: Harness):
    """Other values are refused without `replace`; with it the next occurrence is the first one of the new pattern."""
    clockwork = Clockwork(store)
    clockwork.create(cron())
    with pytest.raises(ScheduleError, match=r"the cron 'nightly' exists with other values: replace=True \(--replace\)"):
        clockwork.create(cron("45 * * * *"))
    assert HALF == clockwork.schedule().next_at
    row = clockwork.create(cron("45 * * * *"), replace=True)

    assert (cron("45 * * * *"), HALF + HOUR / 4, True) == (row.definition, row.next_at, row.created)
    assert [("amy", "create")] * 2 == audited(clockwork)


def test_a_replaced_cron_keeps_a_due_occurrence_if_the_pattern_stays(store: Harness):
    """Another task for the same pattern starts the occurrence that was due before the replacement."""
    clockwork = Clockwork(store)
    clockwork.create(cron())
    clockwork.until(HALF)
    clockwork.create(cron(job=made("other")), replace=True)

    assert [(HALF, OccurrenceDecision.STARTED)] == clockwork.fired()
    assert ["other"] == [each.task for each in store.jobs()]


def test_names_that_the_code_declares_are_refused(store: Harness):
    """Neither creation nor deletion changes a schedule of the code."""
    clockwork = Clockwork(store)
    clockwork.declare(cron(), keeping())

    with pytest.raises(ScheduleError, match="the cron 'nightly' is declared by the code of a worker: choose another"):
        clockwork.create(cron("45 * * * *"), replace=True)
    with pytest.raises(ScheduleError, match="the refresh 'fresh' is declared by the code"):
        clockwork.create(cron(name="fresh"), replace=True)
    with pytest.raises(ScheduleError, match="the cron 'nightly' is declared by the code of a worker: remove it there"):
        clockwork.delete()
    assert cron() == clockwork.schedule().definition


@pytest.mark.parametrize("declared", [cron(), cron("45 * * * *"), keeping(name="nightly")])
def test_code_that_declares_the_name_replaces_a_created_cron(store: Harness, declared: object):
    """Code that declares the name later replaces the created cron, also with equal values, and the log has it."""
    clockwork = Clockwork(store)
    clockwork.create(cron())
    taken = clockwork.do(schedules.declare([declared], now=T0))
    row = clockwork.schedule()

    assert (("nightly",), False, declared) == (taken, row.created, row.definition)
    assert [("amy", "create"), ("redrive", "declare")] == audited(clockwork)
    assert () == clockwork.do(schedules.declare([declared], now=T0))


def test_a_cron_that_never_occurs_again_is_refused(store: Harness):
    """All occurrences in the past are an error, and nothing is stored."""
    clockwork = Clockwork(store)
    with pytest.raises(ScheduleError, match="cron 'nightly': '0 0 12 1 1 \\* 2020' does not occur again"):
        clockwork.create(cron("0 0 12 1 1 * 2020"))

    assert () == clockwork.do(schedules.select())


def test_a_deleted_cron_does_not_occur_again(store: Harness):
    """Deletion keeps the jobs and the past occurrences; only future ones end."""
    clockwork = Clockwork(store)
    clockwork.create(cron())
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.delete()

    assert () == clockwork.do(schedules.status(now=T0))
    with pytest.raises(ScheduleNotFound):
        clockwork.fire()
    assert 1 == len(store.jobs())
    assert [HALF] == [each.occurs_at for each in clockwork.do(schedules.occurrences("nightly"))]
    assert [("amy", "create"), ("amy", "delete")] == audited(clockwork)


def test_a_cron_that_is_created_again_repeats_no_occurrence(store: Harness):
    """After deletion and creation, an occurrence that was started is not started again, not even by a backfill."""
    clockwork = Clockwork(store)
    clockwork.create(cron())
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.delete()
    clockwork.create(cron())

    assert [] == clockwork.fired()
    assert () == clockwork.backfill(T0, HALF)
    assert 1 == len(store.jobs())
    assert HALF + HOUR == clockwork.schedule().next_at


def test_jobs_of_a_deleted_cron_end_as_before(store: Harness):
    """The end of a job starts nothing if its cron was deleted while an occurrence waited for it."""
    clockwork = Clockwork(store)
    clockwork.create(cron(overlap=Overlap.QUEUE))
    clockwork.until(HALF)
    clockwork.fire()
    claim = store.take()
    clockwork.until(HALF + HOUR)
    clockwork.fire()
    clockwork.delete()
    clockwork.do(clockwork.settling(claim))

    assert ["succeeded"] == [each.state for each in store.jobs()]


def test_missing_schedules_are_not_deleted(store: Harness):
    """Deletion of an unknown name is an error."""
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'nightly'"):
        Clockwork(store).delete()


def test_concurrent_creations_of_the_same_cron_agree(store: Harness):
    """Two processes that create the same cron at once get the same row, and there is one."""
    wanted = [crons.create(cron(), actor="amy", now=T0) for _ in range(2)]
    one, other = store.at_once(wanted)

    assert one == other
    assert (one,) == store.do(schedules.select())
