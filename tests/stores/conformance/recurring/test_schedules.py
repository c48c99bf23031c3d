"""Declared schedules, their due times, and the operators' switches."""

from __future__ import annotations

import pytest

from redrive.engine.origin import Kind
from redrive.engine.recurring import Overlap
from redrive.errors import ScheduleNotFound, StoreError
from redrive.schedule import Schedule
from redrive.stores.operations import audit, schedules
from redrive.stores.operations.schedules import ScheduleStatus
from tests.stores.helpers import T0, Harness
from tests.stores.recurring import HALF, HOUR, MINUTE, Clockwork, cron, keeping


def looked(clockwork: Clockwork) -> dict[str, ScheduleStatus]:
    """Return the due schedules by name."""
    return {each.name: each for each in clockwork.do(schedules.status(now=clockwork.now))}


# ------------------------------------------------------------------------------------------------------------ declaring


def test_declared_schedules_are_stored(store: Harness):
    """Declared schedules are stored, crons together with their next occurrence."""
    clockwork = Clockwork(store)
    clockwork.declare(cron(), keeping())

    assert [cron(), keeping()] == [clockwork.schedule(name).definition for name in ("nightly", "fresh")]
    assert [HALF, None] == [clockwork.schedule(name).next_at for name in ("nightly", "fresh")]
    assert [Kind.REFRESH, Kind.CRON] == [each.kind for each in store.do(schedules.select())]


def test_an_empty_declaration_is_allowed(store: Harness):
    """Apps without schedules declare none."""
    Clockwork(store).declare()

    assert () == store.do(schedules.select())


def test_schedules_are_read_by_name(store: Harness):
    """Reads by name return only the named schedules, and ignore an unknown name among several."""
    Clockwork(store).declare(cron(), keeping())

    assert ["nightly"] == [each.name for each in store.do(schedules.select(["nightly", "other"]))]


def test_an_undeclared_schedule_is_not_found(store: Harness):
    """Reading a schedule by an unknown name raises an error that explains how schedules are created."""
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'nightly'; .* with code that declares it"):
        Clockwork(store).schedule()


def test_the_same_once_more_changes_nothing(store: Harness):
    """Declaring the same again, by a second worker or a deployment, changes nothing."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    before = clockwork.schedule()
    store.wait(2 * 3600)
    clockwork.declare(cron())

    assert before == clockwork.schedule()


def test_a_deployment_of_other_jobs_moves_nothing_that_is_planned(store: Harness):
    """If only the job template changes, a due occurrence stays due."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    clockwork.until(HALF + MINUTE)
    clockwork.declare(cron(overlap=Overlap.ALLOW))

    assert (cron(overlap=Overlap.ALLOW), HALF) == (clockwork.schedule().definition, clockwork.schedule().next_at)


def test_a_deployment_of_another_pattern_replans(store: Harness):
    """If the pattern changes, the next occurrence is the first one of the new pattern."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    clockwork.declare(cron("45 * * * *"))

    assert T0 + 45 * MINUTE == clockwork.schedule().next_at


def test_another_time_zone_is_another_timing(store: Harness):
    """Changing the time zone of the same pattern replans the cron."""
    clockwork = Clockwork(store)
    clockwork.declare(cron("0 13 * * *"))
    clockwork.declare(cron("0 13 * * *", tz="America/New_York"))

    assert T0 + 6 * HOUR == clockwork.schedule().next_at


def test_a_cron_may_become_a_refresh(store: Harness):
    """Reusing a cron's name for a refresh keeps no state of the cron."""
    clockwork = Clockwork(store)
    clockwork.declare(cron(overlap=Overlap.QUEUE))
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.declare(keeping(name="nightly"))
    row = clockwork.schedule()

    assert (Kind.REFRESH, None, None, None) == (row.kind, row.next_at, row.job_id, row.queued_at)
    assert () == clockwork.fire()


def test_schedules_of_a_newer_redrive_are_not_touched(store: Harness):
    """Unreadable documents have no definition and fire nothing; reading their definition raises an error."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    clockwork.spoil_schedule("nightly")
    clockwork.until(HALF)

    assert None is clockwork.schedule().definition
    assert () == clockwork.fire()
    with pytest.raises(StoreError, match="'nightly' cannot be read by this redrive: a newer one may"):
        clockwork.backfill(T0, HALF)


# -------------------------------------------------------------------------------------------------------------- reading


def test_the_status_has_the_due_time_of_a_cron(store: Harness):
    """Crons are due at their next occurrence; the result includes the instant of the query."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())

    expected = ScheduleStatus("nightly", Kind.CRON, created=False, due_at=HALF, is_stale=False, sweep_at=None, now=T0)
    assert {"nightly": expected} == looked(clockwork)


def test_the_status_has_the_due_time_of_the_first_item(store: Harness):
    """Refreshes are due at their earliest start; running, paused and disabled items do not count."""
    clockwork = Clockwork(store)
    clockwork.running("runs")
    clockwork.track("waits", at_once=False)
    clockwork.track("rests", at_once=False)
    clockwork.pause("rests")

    assert HALF == looked(clockwork)["fresh"].due_at
    clockwork.pause("waits")
    assert None is looked(clockwork)["fresh"].due_at


def test_the_status_has_the_earliest_deadline(store: Harness):
    """Lines include the earliest deadline of all attempts."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    clockwork.track("a")
    store.wait(60)
    clockwork.track("b")

    assert {T0 + 10 * MINUTE} == {each.sweep_at for each in looked(clockwork).values()}


def test_the_status_is_stale_while_items_follow_an_older_policy(store: Harness):
    """After a deployment of another policy a refresh is stale until all its items have been rescheduled."""
    clockwork = Clockwork(store)
    clockwork.track("a", at_once=False)
    stale = [looked(clockwork)["fresh"].is_stale]
    clockwork.declare(keeping(schedule=Schedule.cron("45 * * * *")))
    stale.append(looked(clockwork)["fresh"].is_stale)
    clockwork.replan()

    assert [False, True, False] == [*stale, looked(clockwork)["fresh"].is_stale]


# -------------------------------------------------------------------------------------------------------------- pausing


def test_a_paused_schedule_is_never_due(store: Harness):
    """Paused schedules are not listed as due and do not fire."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    store.do(schedules.pause("nightly", now=store.now))
    clockwork.until(HALF)

    assert None is looked(clockwork)["nightly"].due_at
    assert () == clockwork.fire()


def test_occurrences_during_a_pause_are_skipped(store: Harness):
    """Resumed crons continue with their next occurrence."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    store.do(schedules.pause("nightly", now=store.now))
    clockwork.until(HALF + MINUTE)
    resumed = store.do(schedules.resume("nightly", now=store.now))

    assert (None, store.now, HALF + HOUR) == (resumed.paused_at, resumed.resumed_at, resumed.next_at)
    assert resumed == clockwork.schedule()
    assert () == clockwork.fire()


def test_a_second_pause_changes_nothing(store: Harness):
    """Pausing a paused schedule, or resuming an active one, changes nothing."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    unpaused = store.do(schedules.resume("nightly", now=store.now))
    paused = store.do(schedules.pause("nightly", now=store.now))
    store.wait(60)

    assert paused == store.do(schedules.pause("nightly", now=store.now))
    assert (None, T0) == (unpaused.resumed_at, paused.paused_at)


def test_pauses_and_resumes_are_in_the_audit_log(store: Harness):
    """Record the actor and the time of each pause and resume."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    store.do(schedules.pause("nightly", actor="ann", now=store.now))
    store.wait(60)
    store.do(schedules.resume("nightly", actor="bob", now=store.now))
    lines = store.do(audit.audit())

    assert [("bob", "resume"), ("ann", "pause")] == [(each.actor, each.action) for each in lines]


def test_a_deployment_does_not_end_a_pause(store: Harness):
    """Paused schedules stay paused after a new declaration."""
    clockwork = Clockwork(store)
    clockwork.declare(cron())
    store.do(schedules.pause("nightly", now=store.now))
    clockwork.declare(cron("45 * * * *"))

    assert T0 == clockwork.schedule().paused_at
