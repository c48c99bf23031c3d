"""Crons: the occurrences that start, and the decisions on the others."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.occurrence import Occurrence, OccurrenceDecision
from redrive.engine.outcome import Cancelled, Succeeded
from redrive.engine.recurring import CatchUp, Overlap
from redrive.errors import IllegalMove, ScheduleError, ScheduleNotFound
from redrive.stores.operations import audit, crons, schedules
from tests.stores.helpers import FATAL, LEASE, T0, Harness, failed, seconds
from tests.stores.recurring import HALF, HOUR, MINUTE, Clockwork, cron, keeping, made

STARTED, QUEUED, SKIPPED, MISSED = (
    OccurrenceDecision.STARTED,
    OccurrenceDecision.QUEUED,
    OccurrenceDecision.SKIPPED,
    OccurrenceDecision.MISSED,
)


@pytest.fixture
def clockwork(store: Harness) -> Clockwork:
    """Return a helper for schedules in a new store."""
    return Clockwork(store)


def states(clockwork: Clockwork) -> list[State]:
    """Return the states of the created jobs, oldest first."""
    return [job.state for job in clockwork.jobs()]


def decisions(clockwork: Clockwork) -> list[tuple[datetime, OccurrenceDecision]]:
    """Return the decisions on all occurrences, oldest first."""
    found = clockwork.do(schedules.occurrences("nightly"))
    return [(each.occurs_at, each.decision) for each in reversed(found)]


# --------------------------------------------------------------------------------------------------------------- firing


def test_an_occurrence_makes_one_job(clockwork: Clockwork):
    """Occurrences that are due create their job as declared, with the occurrence as its origin."""
    clockwork.declare(cron(job=replace(made(), queue="slow", priority=3)))
    clockwork.until(HALF)
    (fired,) = clockwork.fire()
    (job,) = clockwork.jobs()

    assert Occurrence("nightly", HALF, HALF, STARTED, job.id) == fired
    assert ("do", "slow", 3, "cron:nightly/2026-01-01T12:30:00Z") == (job.task, job.queue, job.priority, job.origin)
    assert (HALF, State.READY) == (job.scheduled_at, job.state)


def test_the_job_of_an_occurrence_can_be_run(clockwork: Clockwork):
    """Workers claim the job of an occurrence with empty arguments and the declared policy."""
    clockwork.declare(cron(job=made(retry="3 5s")))
    clockwork.until(HALF)
    clockwork.fire()
    claim = clockwork.store.take()

    assert (b"{}", made(retry="3 5s").policy.policy) == (claim.payload, claim.policy)
    assert State.READY is clockwork.store.end(claim, failed()).state
    assert [State.READY] == states(clockwork)


def test_the_row_moves_on(clockwork: Clockwork):
    """After an occurrence the next one is planned, and the schedule has the id of the latest job."""
    clockwork.declare(cron())
    clockwork.until(HALF)
    (fired,) = clockwork.fire()

    assert (HALF + HOUR, fired.job_id) == (clockwork.schedule().next_at, clockwork.schedule().job_id)


def test_no_occurrence_is_fired_before_its_time(clockwork: Clockwork):
    """Firing early, or a second time, starts nothing."""
    clockwork.declare(cron())
    early = clockwork.fire()
    clockwork.until(HALF)
    clockwork.fire()

    assert ((), ()) == (early, clockwork.fire())
    assert 1 == len(clockwork.jobs())


def test_a_clock_that_goes_back_fires_nothing_twice(clockwork: Clockwork):
    """Occurrences that were passed over are not fired again after the clock goes back."""
    clockwork.declare(cron())
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.until(T0)
    early = clockwork.fire()
    clockwork.until(HALF)

    assert ((), ()) == (early, clockwork.fire())


def test_an_undeclared_cron_is_not_found(clockwork: Clockwork):
    """Firing, triggering or backfilling an undeclared cron raises an error."""
    for operation in (crons.fire("no"), crons.trigger("no"), crons.backfill("no", T0, T0)):
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'no'"):
            clockwork.do(operation)


def test_a_refresh_is_no_cron(clockwork: Clockwork):
    """Refreshes do not fire; triggering one as a cron raises an error that asks for the item's key."""
    clockwork.declare(keeping())

    assert () == clockwork.fire("fresh")
    with pytest.raises(IllegalMove, match="'fresh' is a refresh: name its key"):
        clockwork.do(crons.trigger("fresh"))


def test_the_last_occurrence_of_a_cron_with_an_end_is_fired(clockwork: Clockwork):
    """Crons limited to a year fire for the last time in that year."""
    last = datetime(2026, 12, 31, 23, 0, tzinfo=UTC)
    clockwork.declare(cron("0 0 23 31 12 * 2026"))
    clockwork.until(last)

    assert [(last, STARTED)] == clockwork.fired()
    assert None is clockwork.schedule().next_at
    clockwork.until(last.replace(year=2030))
    assert () == clockwork.fire()


JITTER = 20 * MINUTE


def test_the_job_of_an_occurrence_with_jitter_is_due_later(clockwork: Clockwork):
    """The occurrence is decided at its time; the job waits until the start that every process computes."""
    definition = cron(jitter=JITTER)
    clockwork.declare(definition)
    clockwork.until(HALF)
    (fired,) = clockwork.fire()
    (job,) = clockwork.jobs()
    early = clockwork.store.claim()
    clockwork.until(definition.starts_at(HALF))

    assert (HALF, definition.starts_at(HALF)) == (fired.occurs_at, job.scheduled_at)
    assert HALF < definition.starts_at(HALF) < HALF + JITTER
    assert ((), job.id) == (early, clockwork.store.take().id)
    assert HALF + HOUR == clockwork.schedule().next_at


def test_an_occurrence_with_jitter_that_is_late_starts_at_once(clockwork: Clockwork):
    """After an outage longer than the jitter the last occurrence starts now, and a backfill likewise."""
    clockwork.declare(cron(jitter=JITTER))
    clockwork.until(HALF + 3 * HOUR + JITTER)
    clockwork.fire()
    clockwork.backfill(HALF, HALF + HOUR)

    assert [clockwork.now] * 3 == [job.scheduled_at for job in clockwork.jobs()]


def test_a_trigger_has_no_jitter(clockwork: Clockwork):
    """An operator who starts a cron starts it now."""
    clockwork.declare(cron(jitter=JITTER))
    clockwork.do(crons.trigger("nightly", now=clockwork.now))

    assert [clockwork.now] == [job.scheduled_at for job in clockwork.jobs()]


@pytest.mark.parametrize(
    ("overlap", "expected"), [(Overlap.SKIP, SKIPPED), (Overlap.QUEUE, QUEUED), (Overlap.CANCEL, STARTED)]
)
def test_a_job_that_waits_for_its_jitter_has_not_ended(clockwork: Clockwork, overlap: Overlap, expected: object):
    """An occurrence that the clock brings before the job of the one before has started overlaps with that job."""
    definition = cron(overlap=overlap, jitter=JITTER)
    clockwork.declare(definition)
    clockwork.until(HALF)
    clockwork.fire()
    first = clockwork.store.now
    clockwork.declare(replace(definition, pattern="31 * * * *"))
    clockwork.until(first + MINUTE)

    assert [(first + MINUTE, expected)] == clockwork.fired()


def test_a_deployment_keeps_the_occurrences_of_an_interval(clockwork: Clockwork):
    """Every 90 minutes is counted from a fixed instant, whenever and however often workers declare it."""
    definition = cron("every 90 minutes")
    planned = []
    for minute in range(0, 180, 7):
        clockwork.until(T0 + minute * MINUTE)
        clockwork.fire() if minute else None
        clockwork.declare(definition)
        planned.append(clockwork.schedule().next_at)

    assert [T0, T0 + 90 * MINUTE, T0 + 180 * MINUTE] == sorted({each for each in planned if each is not None})


@pytest.mark.parametrize("round_", range(3))
def test_concurrent_workers_with_jitter_start_one_job(shared: Harness, round_: int):
    """Several schedulers that fire at once create one job, at the instant on which they agree."""
    clockwork = Clockwork(shared)
    definition = cron(jitter=JITTER, name="nightly")
    clockwork.declare(definition)
    clockwork.until(HALF)
    shared.at_once([crons.fire("nightly", now=HALF) for _ in range(4)])

    assert [definition.starts_at(HALF)] == [job.scheduled_at for job in clockwork.jobs()]


@pytest.mark.parametrize("round_", range(3))
def test_concurrent_workers_fire_an_occurrence_once(shared: Harness, round_: int):
    """Two workers that fire at the same instant create one job in total."""
    clockwork = Clockwork(shared)
    clockwork.declare(cron())
    clockwork.until(HALF)
    answers = shared.at_once([crons.fire("nightly", now=HALF) for _ in range(4)])

    assert [1] == [len(each) for each in answers if each]
    assert 1 == len(clockwork.jobs())


# -------------------------------------------------------------------------------------------------------------- overlap


def test_overlap_skip_skips_an_occurrence(clockwork: Clockwork):
    """While a job runs, its successor is skipped, and the row names the running job."""
    first = clockwork.follows(Overlap.SKIP)
    (_, skipped) = reversed(clockwork.do(schedules.occurrences("nightly")))

    assert (SKIPPED, f"job {first.id} before it had not ended") == (skipped.decision, skipped.note)
    assert [State.RUNNING] == states(clockwork)


@pytest.mark.parametrize("overlap", Overlap)
def test_an_ended_predecessor_blocks_no_occurrence(clockwork: Clockwork, overlap: Overlap):
    """After its predecessor has ended, an occurrence starts under every overlap policy."""
    clockwork.declare(cron(overlap=overlap))
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.store.end(clockwork.store.take(), FATAL)
    clockwork.until(HALF + HOUR)

    assert [(HALF + HOUR, STARTED)] == clockwork.fired()


def test_a_job_that_waits_for_its_retry_has_not_ended(clockwork: Clockwork):
    """Jobs between two attempts block an occurrence like running ones."""
    clockwork.declare(cron(job=made(retry="5 3h")))
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.store.end(clockwork.store.take(), failed())
    clockwork.until(HALF + HOUR)

    assert [(HALF + HOUR, SKIPPED)] == clockwork.fired()


def test_overlap_allow_runs_both(clockwork: Clockwork):
    """With overlap="allow" an occurrence starts beside its predecessor."""
    clockwork.follows(Overlap.ALLOW)

    assert [State.RUNNING, State.READY] == states(clockwork)


def test_overlap_cancel_ends_the_predecessor(clockwork: Clockwork):
    """With overlap="cancel" the predecessor is cancelled, with a line in its history; its late answer is refused."""
    first = clockwork.follows(Overlap.CANCEL)

    assert [State.CANCELLED, State.READY] == states(clockwork)
    assert ["the next occurrence of nightly has come"] == [e.verdict for e in clockwork.store.history(first.id)]
    assert frozenset({first.lease_id}) == clockwork.store.settle((first, Succeeded())).lost


def test_overlap_queue_lets_one_occurrence_wait(clockwork: Clockwork):
    """With overlap="queue" the next occurrence waits, and later ones are skipped."""
    clockwork.follows(Overlap.QUEUE)
    clockwork.until(HALF + 2 * HOUR)
    clockwork.fire()

    assert HALF + HOUR == clockwork.schedule().queued_at
    assert [STARTED, QUEUED, SKIPPED] == [each for _, each in decisions(clockwork)]
    assert [State.RUNNING] == states(clockwork)


ENDS: dict[str, Any] = {
    "success": lambda store, claim: store.end(claim),
    "failure": lambda store, claim: store.end(claim, FATAL),
    "own cancel": lambda store, claim: store.end(claim, Cancelled("enough")),
    "operator": lambda store, claim: store.cancel(claim.id),
}
"""The ways in which a job ends."""


@pytest.mark.parametrize("how", ENDS)
def test_a_queued_occurrence_starts_in_the_transaction_of_its_predecessor(clockwork: Clockwork, how: str):
    """Create the job of a queued occurrence in the transaction that ends its predecessor."""
    first = clockwork.follows(Overlap.QUEUE)
    clockwork.store.wait(90)
    ENDS[how](clockwork.store, first)
    row, (second,) = clockwork.schedule(), clockwork.jobs()[1:]

    assert (None, second.id) == (row.queued_at, row.job_id)
    assert [(HALF, STARTED), (HALF + HOUR, STARTED)] == decisions(clockwork)
    assert "cron:nightly/2026-01-01T13:30:00Z" == second.origin
    assert "waited 0:01:30 for the one before it" == clockwork.do(schedules.occurrences("nightly"))[0].note


def test_a_queued_occurrence_starts_when_its_predecessor_is_poison(clockwork: Clockwork):
    """If a sweep ends a job that has crashed three workers, the same sweep starts the queued occurrence."""
    store = clockwork.store
    clockwork.declare(cron(overlap=Overlap.QUEUE))
    clockwork.until(HALF)
    clockwork.fire()
    for _ in range(2):
        store.take(worker=store.worker())
        store.wait(LEASE.total_seconds() + 1)
        store.sweep()
    store.take(worker=store.worker())
    clockwork.until(HALF + HOUR)
    queued = clockwork.fired()
    store.sweep()

    assert [(HALF + HOUR, QUEUED)] == queued
    assert [State.DEAD, State.READY] == states(clockwork)


def test_a_retried_failure_does_not_end_an_occurrence(clockwork: Clockwork):
    """While the predecessor has attempts left, the queued occurrence waits."""
    first = clockwork.follows(Overlap.QUEUE, retry="5 1s")
    clockwork.store.end(first, failed())

    assert HALF + HOUR == clockwork.schedule().queued_at
    assert [State.READY] == states(clockwork)


def test_many_ends_start_each_once(clockwork: Clockwork):
    """Ends that are settled together start each queued occurrence once."""
    for name in ("nightly", "weekly"):
        clockwork.declare(cron(name=name, overlap=Overlap.QUEUE))
    clockwork.until(HALF)
    for name in ("nightly", "weekly"):
        clockwork.fire(name)
    claims = clockwork.store.claim(2)
    clockwork.until(HALF + HOUR)
    for name in ("nightly", "weekly"):
        clockwork.fire(name)
    clockwork.store.settle((claims[0], Succeeded()), (claims[1], FATAL))

    assert [State.SUCCEEDED, State.DEAD, State.READY, State.READY] == states(clockwork)
    assert {f"cron:{name}/2026-01-01T13:30:00Z" for name in ("nightly", "weekly")} == {
        job.origin for job in clockwork.jobs()[2:]
    }


def test_an_unprocessed_end_is_seen_at_the_next_occurrence(clockwork: Clockwork):
    """If a predecessor's end did not start the queued occurrence, the next occurrence detects that."""
    first = clockwork.follows(Overlap.QUEUE)
    document = clockwork.schedule().document
    clockwork.spoil_schedule("nightly")
    clockwork.store.end(first)
    unread = clockwork.schedule().queued_at
    clockwork.spoil_schedule("nightly", document)
    clockwork.until(HALF + 2 * HOUR)

    assert HALF + HOUR == unread
    assert [(HALF + HOUR, STARTED), (HALF + 2 * HOUR, QUEUED)] == clockwork.fired()


def test_a_queued_occurrence_is_skipped_in_a_pause(clockwork: Clockwork):
    """Queued occurrences are not started while the cron is paused."""
    first = clockwork.follows(Overlap.QUEUE)
    clockwork.do(schedules.pause("nightly", now=clockwork.now))
    clockwork.store.end(first)

    assert [(HALF, STARTED), (HALF + HOUR, SKIPPED)] == decisions(clockwork)
    assert None is clockwork.schedule().queued_at
    assert 1 == len(clockwork.jobs())


# --------------------------------------------------------------------------------------------------------- catching up


LATE = HALF + 5 * HOUR + 2 * MINUTE
"""The workers come back after six occurrences."""


def test_catch_up_one_starts_the_last_missed_occurrence(clockwork: Clockwork):
    """With catch_up="one" all missed occurrences are one late job."""
    clockwork.declare(cron())
    clockwork.until(LATE)
    (fired,) = clockwork.fire()

    assert (LATE - 2 * MINUTE, STARTED) == (fired.occurs_at, fired.decision)
    assert "0:02:00 late; those since 2026-01-01 12:30:00 UTC are left out" == fired.note
    assert LATE - 2 * MINUTE + HOUR == clockwork.schedule().next_at


def test_catch_up_none_starts_no_missed_occurrence(clockwork: Clockwork):
    """With catch_up="none" a missed occurrence creates no job, and the next one is planned."""
    clockwork.declare(cron(catch_up=CatchUp.NONE))
    clockwork.until(LATE)

    assert [(LATE - 2 * MINUTE, MISSED)] == clockwork.fired()
    assert ([], LATE - 2 * MINUTE + HOUR) == (states(clockwork), clockwork.schedule().next_at)


def test_a_slightly_late_occurrence_is_not_missed(clockwork: Clockwork):
    """With catch_up="none" an occurrence of half a minute ago starts."""
    clockwork.declare(cron(catch_up=CatchUp.NONE))
    clockwork.until(HALF + seconds(30))

    assert [(HALF, STARTED)] == clockwork.fired()


def test_all_missed_occurrences_of_a_window_are_started(clockwork: Clockwork):
    """With catch_up="all" each occurrence within the window creates its job; the older ones are one line."""
    clockwork.declare(cron(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, window=2 * HOUR))
    clockwork.until(LATE)
    last = LATE - 2 * MINUTE

    assert [(HALF, MISSED), (last - HOUR, STARTED), (last, STARTED)] == clockwork.fired()
    assert [f"cron:nightly/2026-01-01T{hour}:30:00Z" for hour in (16, 17)] == [e.origin for e in clockwork.jobs()]


# --------------------------------------------------------------------------------------------------------- by operators


def test_a_trigger_starts_at_once(clockwork: Clockwork):
    """Triggering a cron creates a job at once, leaves the plan unchanged and writes an audit line."""
    clockwork.declare(cron())
    done = clockwork.do(crons.trigger("nightly", actor="ann", now=T0))
    (line,) = clockwork.do(audit.audit())

    assert (T0, STARTED, "triggered by ann") == (done.occurs_at, done.decision, done.note)
    assert [done.job_id] == [job.id for job in clockwork.jobs()]
    assert HALF == clockwork.schedule().next_at
    assert ("ann", "trigger") == (line.actor, line.action)
    assert {"schedule": "nightly", "ids": [done.job_id]} == json.loads(line.details)


def test_a_trigger_ignores_pauses_and_overlaps(clockwork: Clockwork):
    """Triggering a paused or running cron starts a job all the same."""
    clockwork.declare(cron())
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.do(schedules.pause("nightly", now=HALF))
    clockwork.do(crons.trigger("nightly", now=HALF))

    assert [State.READY, State.READY] == states(clockwork)


def test_two_triggers_at_one_instant_are_two(clockwork: Clockwork):
    """Triggering twice creates two jobs, even at the same instant."""
    clockwork.declare(cron())
    first, second = (clockwork.do(crons.trigger("nightly", now=T0)) for _ in range(2))

    assert (T0, T0 + seconds(0.000001)) == (first.occurs_at, second.occurs_at)
    assert 2 == len(clockwork.jobs())


def test_the_triggered_job_is_the_predecessor(clockwork: Clockwork):
    """Occurrences that are due while a triggered job runs overlap with it."""
    clockwork.declare(cron())
    clockwork.do(crons.trigger("nightly", now=T0))
    clockwork.until(HALF)

    assert [(HALF, SKIPPED)] == clockwork.fired()


def test_a_backfill_starts_occurrences_that_were_not_started(clockwork: Clockwork):
    """Backfills create jobs for all occurrences of the range, both ends included, that were not started."""
    clockwork.declare(cron())
    clockwork.until(HALF)
    clockwork.fire()
    clockwork.until(HALF + 2 * HOUR)
    done = clockwork.backfill(HALF - HOUR, HALF + 2 * HOUR)

    assert [HALF - HOUR, HALF + HOUR, HALF + 2 * HOUR] == sorted(each.occurs_at for each in done)
    assert {"backfilled by unknown"} == {each.note for each in done}
    assert 4 == len(clockwork.jobs())


def test_a_second_backfill_starts_nothing(clockwork: Clockwork):
    """Backfilling twice has the effect of one, and only the first is in the audit log."""
    clockwork.declare(cron())
    clockwork.until(HALF + HOUR)
    first, second = (clockwork.backfill(HALF, HALF + HOUR) for _ in range(2))

    assert (2, ()) == (len(first), second)
    assert ["backfill"] == [each.action for each in clockwork.do(audit.audit())]


def test_a_backfill_starts_skipped_occurrences(clockwork: Clockwork):
    """Backfilling can start an occurrence that was skipped."""
    clockwork.follows(Overlap.SKIP)
    (done,) = clockwork.backfill(HALF, HALF + HOUR)

    assert (HALF + HOUR, STARTED) == (done.occurs_at, done.decision)
    assert [(HALF, STARTED), (HALF + HOUR, STARTED)] == decisions(clockwork)


def test_backfilled_occurrences_are_not_fired_again(clockwork: Clockwork):
    """Occurrences that a backfill has started are not started again by the worker."""
    clockwork.declare(cron(overlap=Overlap.ALLOW))
    clockwork.until(HALF)
    clockwork.backfill(HALF, HALF)

    assert () == clockwork.fire()
    assert 1 == len(clockwork.jobs())


def test_a_backfill_without_occurrences_creates_no_job(clockwork: Clockwork):
    """Backfilling a range without occurrences starts nothing and writes no audit line."""
    clockwork.declare(cron())

    assert ((), ()) == (clockwork.backfill(T0 - MINUTE, T0), clockwork.do(audit.audit()))


def test_a_backfill_of_the_future_is_refused(clockwork: Clockwork):
    """Backfills of the future, or of too many occurrences, are refused."""
    clockwork.declare(cron("* * * * * *"))
    with pytest.raises(ScheduleError, match="that is not past; occurrences to come are started when they come"):
        clockwork.backfill(T0, T0 + MINUTE)
    with pytest.raises(ScheduleError, match="there are more than 10,000 occurrences from .* take less"):
        clockwork.backfill(T0 - 24 * HOUR, T0)

    assert [] == clockwork.jobs()


# -------------------------------------------------------------------------------------------------------------- reading


def test_occurrences_are_listed_the_latest_first(clockwork: Clockwork):
    """Pages of occurrences, latest first, end at the limit; the next page begins before the last line."""
    clockwork.declare(cron(overlap=Overlap.ALLOW))
    for hour in range(3):
        clockwork.until(HALF + hour * HOUR)
        clockwork.fire()
    page = clockwork.do(schedules.occurrences("nightly", limit=2))
    rest = clockwork.do(schedules.occurrences("nightly", before=page[-1].occurs_at))

    assert [HALF + 2 * HOUR, HALF + HOUR, HALF] == [each.occurs_at for each in (*page, *rest)]


def test_the_latest_occurrences_of_each_cron_are_read_with_their_jobs(clockwork: Clockwork):
    """Each cron with decided occurrences has its latest ones, with the states of their jobs, before an instant too."""
    clockwork.declare(cron(overlap=Overlap.ALLOW), cron(name="another"), cron("0 0 1 1 *", name="rare"))
    for hour in range(3):
        clockwork.until(HALF + hour * HOUR)
        clockwork.fire()
    clockwork.do(crons.fire("another", now=clockwork.now))
    all_of = clockwork.do(schedules.outcomes(most=2))
    first = clockwork.do(schedules.outcomes(["nightly"], before=HALF + HOUR, most=2))

    assert [("another", HALF + 2 * HOUR), ("nightly", HALF + 2 * HOUR), ("nightly", HALF + HOUR)] == [
        (each.schedule, each.occurs_at) for each in all_of
    ]
    assert [(HALF, State.READY, 0, False)] == [
        (each.occurs_at, each.state, each.attempts, each.caught) for each in first
    ]
    assert all(each.job_id is not None for each in all_of)


def test_old_occurrences_are_forgotten(clockwork: Clockwork):
    """Delete occurrences decided before the given time, the oldest first, in batches."""
    clockwork.declare(cron(overlap=Overlap.ALLOW))
    for hour in range(4):
        clockwork.until(HALF + hour * HOUR)
        clockwork.fire()
    counts = [clockwork.do(schedules.forget_occurrences(HOUR, limit=2, now=clockwork.now)) for _ in range(2)]

    assert [2, 1] == counts
    assert [(HALF + 3 * HOUR, STARTED)] == decisions(clockwork)


# ------------------------------------------------------------------------------------------------------------ the clock


def test_a_cron_that_is_ahead_of_the_clock_waits_for_its_next_occurrence(clockwork: Clockwork):
    """After the clock was set back a cron fires again within its interval; one that is not ahead stays."""
    clockwork.until(T0 + 999 * HOUR)
    clockwork.declare(cron())
    clockwork.until(T0)

    assert [999 * HOUR, None] == [clockwork.do(crons.set_back("nightly", now=T0)) for _ in range(2)]
    assert HALF == clockwork.schedule().next_at


@pytest.mark.parametrize("overlap", list(Overlap))
def test_an_occurrence_that_was_started_is_not_started_again_by_a_clock_that_was_set_back(
    clockwork: Clockwork, overlap: Overlap
):
    """Neither does it cancel the job of that occurrence."""
    clockwork.declare(cron(overlap=overlap))
    clockwork.until(HALF)
    clockwork.fire()
    claim = clockwork.store.take()
    clockwork.until(T0)
    back = clockwork.do(crons.set_back("nightly", now=T0))
    clockwork.until(HALF)
    again = clockwork.fired()

    assert (HOUR, []) == (back, [each for each in again if each[1] is OccurrenceDecision.STARTED])
    assert [claim.id] == [job.id for job in clockwork.jobs()]
    assert State.RUNNING is clockwork.store.job(claim.id).state
    assert HALF + HOUR == clockwork.schedule().next_at


def test_paused_crons_and_refreshes_are_not_replanned(clockwork: Clockwork):
    """After the clock was set back, neither a paused cron nor a refresh is replanned as a cron."""
    clockwork.until(T0 + 999 * HOUR)
    clockwork.declare(cron(), keeping())
    clockwork.do(schedules.pause("nightly", now=clockwork.now))

    assert [None, None] == [clockwork.do(crons.set_back(name, now=T0)) for name in ("nightly", "fresh")]
