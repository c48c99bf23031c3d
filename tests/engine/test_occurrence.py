"""Which occurrences are started: laws that hold for every clock, and what overlaps and gaps lead to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.frozen import freeze
from redrive.engine.occurrence import LATE, DueOccurrence, FirePlan, OccurrenceDecision, fire, released
from redrive.engine.recurring import CatchUp, CronDefinition, JobTemplate, Overlap
from tests.engine.helpers import policy

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
FIRST = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)
"""Two and a half hours before Kyiv advances its clocks."""

STARTED, QUEUED, SKIPPED, MISSED = (
    OccurrenceDecision.STARTED,
    OccurrenceDecision.QUEUED,
    OccurrenceDecision.SKIPPED,
    OccurrenceDecision.MISSED,
)


def cron(pattern: str = "30 * * * *", **changes: Any) -> CronDefinition:
    """Return a cron at half past each hour, or as given."""
    given_: dict[str, Any] = {
        "tz": "Europe/Kyiv",
        "overlap": Overlap.SKIP,
        "catch_up": CatchUp.ONE,
        "window": 3 * HOUR,
        "job": JobTemplate("do", "default", 0, freeze(policy())),
    }
    return CronDefinition(name="nightly", pattern=pattern, **{**given_, **changes})


CRONS = st.builds(
    cron,
    st.sampled_from(["30 * * * *", "* * * * *", "0 3 * * *", "0 30 22 28 3 * 2026", "*/20 * * * * *"]),
    overlap=st.sampled_from(Overlap),
    catch_up=st.sampled_from(CatchUp),
    window=st.sampled_from([timedelta(0), HOUR, 10 * HOUR]),
)
STEPS = st.lists(
    st.tuples(st.sampled_from([-HOUR, timedelta(0), MINUTE, 20 * MINUTE, 5 * HOUR]), st.booleans()), max_size=12
)


@given(CRONS, STEPS, st.integers(1, 5))
def test_occurrences_are_decided_once_and_not_early_for_every_clock(
    definition: CronDefinition, steps: list[tuple[timedelta, bool]], most: int
):
    """No occurrence is decided before its time or twice, each belongs to the schedule, and the next one lies ahead."""
    now, seen = FIRST - MINUTE, set[datetime]()
    next_at: datetime | None = definition.schedule.next(now)
    queued_at: datetime | None = None
    for step, is_running in steps:
        now += step
        if next_at is None:
            break
        result = fire(definition, next_at, now, running=7 if is_running else None, queued_at=queued_at, most=most)
        instants = [each.occurs_at for each in result.due]

        assert instants == sorted({*instants} - seen)
        assert all(next_at <= each <= now for each in instants)
        assert all(each == definition.schedule.next(each) for each in instants)
        full = definition.catch_up is CatchUp.ALL and sum(each.decision is not MISSED for each in result.due) == most
        assert result.next_at is None or result.next_at > now or full
        assert result.next_at is None or result.next_at >= next_at
        assert result.queued_at in {queued_at, *instants}
        seen |= {*instants}
        next_at, queued_at = result.next_at, result.queued_at


@given(CRONS, st.timedeltas(timedelta(0), 9 * HOUR))
def test_catching_up_in_parts_starts_the_same_occurrences(definition: CronDefinition, late: timedelta):
    """Catching up in small parts starts the same occurrences as catching up at once."""
    definition = cron(definition.pattern, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, window=timedelta(days=2))
    now = FIRST + late
    whole = fire(definition, FIRST, now, most=10_000)
    parts: list[datetime] = []
    next_at: datetime | None = FIRST
    while next_at is not None and next_at <= now:
        part = fire(definition, next_at, now, most=1000)
        parts += [each.occurs_at for each in part.due]
        next_at = part.next_at

    assert [each.occurs_at for each in whole.due] == parts[: len(whole.due)]
    assert whole.next_at == next_at or len(whole.due) == 10_000


def test_before_its_time_no_occurrence_is_decided():
    """Before its time nothing is decided, and what waits waits on."""
    now = FIRST - timedelta.resolution

    assert FirePlan((), FIRST, FIRST - HOUR) == fire(cron(), FIRST, now, running=7, queued_at=FIRST - HOUR)


def test_a_timely_occurrence_has_no_note():
    """Usually one occurrence is due, and hardly late."""
    assert FirePlan((DueOccurrence(FIRST, STARTED),), FIRST + HOUR) == fire(cron(), FIRST, FIRST + LATE)


def test_a_late_occurrence_has_a_note():
    """Occurrences later than a restart of workers takes are started with a note."""
    (due,) = fire(cron(), FIRST, FIRST + 90 * MINUTE / 3).due

    assert DueOccurrence(FIRST, STARTED, "0:30:00 late") == due


def test_the_last_of_several_occurrences_is_started_and_names_the_others():
    """Notes of started occurrences name those that were skipped, also if the started one is on time."""
    (due,) = fire(cron(), FIRST, FIRST + 2 * HOUR).due

    assert DueOccurrence(FIRST + 2 * HOUR, STARTED, "those since 2026-03-28 22:30:00 UTC are left out") == due


def test_missed_occurrences_are_skipped_with_their_reason():
    """With catch_up="none" the last of them is written down as missed."""
    result = fire(cron(catch_up=CatchUp.NONE), FIRST, FIRST + 61 * MINUTE + LATE)
    note = "no worker ran for 0:02:00; those since 2026-03-28 22:30:00 UTC are left out"

    assert FirePlan((DueOccurrence(FIRST + HOUR, MISSED, note),), FIRST + 2 * HOUR) == result


def test_all_occurrences_of_a_window_are_started():
    """With catch_up="all" those outside of the window are one line."""
    result = fire(cron(catch_up=CatchUp.ALL), FIRST, FIRST + 5 * HOUR)
    note = "more than 3:00:00 ago, like all from here to 2026-03-29 00:30:00 UTC"

    assert DueOccurrence(FIRST, MISSED, note) == result.due[0]
    assert [FIRST + hours * HOUR for hours in (2, 3, 4, 5)] == [each.occurs_at for each in result.due[1:]]
    assert ["3:00:00 late", "2:00:00 late", "1:00:00 late", None] == [each.note for each in result.due[1:]]


def test_a_window_may_contain_no_occurrence():
    """If no occurrence lies within the window, none is started, and the next one is planned."""
    result = fire(cron(catch_up=CatchUp.ALL, window=MINUTE), FIRST, FIRST + 30 * MINUTE)

    assert ([MISSED], FIRST + HOUR) == ([each.decision for each in result.due], result.next_at)


def test_occurrences_beyond_the_batch_limit_are_due_at_once():
    """Of more than may be decided in one transaction, the rest comes next."""
    result = fire(cron(catch_up=CatchUp.ALL), FIRST, FIRST + 3 * HOUR, most=2)

    assert ([FIRST, FIRST + HOUR], FIRST + 2 * HOUR) == ([each.occurs_at for each in result.due], result.next_at)


OVERLAPS = {
    Overlap.SKIP: FirePlan((DueOccurrence(FIRST, SKIPPED, "job 7 before it had not ended"),), FIRST + HOUR),
    Overlap.QUEUE: FirePlan(
        (DueOccurrence(FIRST, QUEUED, "job 7 before it had not ended"),), FIRST + HOUR, queued_at=FIRST
    ),
    Overlap.ALLOW: FirePlan((DueOccurrence(FIRST, STARTED),), FIRST + HOUR),
    Overlap.CANCEL: FirePlan(
        (DueOccurrence(FIRST, STARTED, "job 7 before it had not ended: it was cancelled"),), FIRST + HOUR, cancels=True
    ),
}


@pytest.mark.parametrize("overlap", Overlap)
def test_each_overlap_decides_an_occurrence_with_a_running_predecessor(overlap: Overlap):
    """Each kind of overlap decides the occurrence and the job before it."""
    assert OVERLAPS[overlap] == fire(cron(overlap=overlap), FIRST, FIRST, running=7)


def test_at_most_one_occurrence_is_queued():
    """Further occurrences are skipped while one is queued."""
    result = fire(cron(overlap=Overlap.QUEUE), FIRST, FIRST, running=7, queued_at=FIRST - HOUR)
    note = "job 7 before it had not ended, and 2026-03-28 21:30:00 UTC waits"

    assert FirePlan((DueOccurrence(FIRST, SKIPPED, note),), FIRST + HOUR, queued_at=FIRST - HOUR) == result


def test_a_missed_occurrence_cancels_no_running_job():
    """Missed occurrences cancel no running job."""
    result = fire(cron(overlap=Overlap.CANCEL, catch_up=CatchUp.NONE), FIRST, FIRST + 9 * MINUTE, running=7)

    assert ([MISSED], False) == ([each.decision for each in result.due], result.cancels)


def test_a_predecessor_that_has_ended_releases_one():
    """Queued occurrences start with a note of their wait; while the cron is paused they are skipped."""
    now = FIRST + timedelta(seconds=90.5)

    assert DueOccurrence(FIRST, STARTED, "waited 0:01:30 for the one before it") == released(FIRST, now)
    assert DueOccurrence(FIRST, SKIPPED, "the job before it ended while the cron was paused") == released(
        FIRST, now, paused=True
    )
