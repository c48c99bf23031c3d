"""Events of crons: their texts, and when they are emitted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from redrive import App, Context, observe
from redrive.observe.measures import OCCURRENCES, Measure, measures
from redrive.testing import VirtualClock, drain

AT = datetime(2026, 1, 1, 3, tzinfo=UTC)
WHAT = {"schedule": "nightly", "occurs_at": AT, "late": timedelta(seconds=2)}
EVENTS = {
    "the occurrence of nightly at 2026-01-01 03:00:00 UTC is started as job 7": observe.CronStarted(
        **WHAT, job_id=7, why=None
    ),
    "the occurrence of nightly at 2026-01-01 03:00:00 UTC is queued: job 7 runs": observe.CronQueued(
        **WHAT, job_id=None, why="job 7 runs"
    ),
    "the occurrence of nightly at 2026-01-01 03:00:00 UTC is skipped: job 7 runs": observe.CronSkipped(
        **WHAT, job_id=None, why="job 7 runs"
    ),
    "the occurrence of nightly at 2026-01-01 03:00:00 UTC is missed: no worker was running": observe.CronMissed(
        **WHAT, job_id=None, why="no worker was running"
    ),
}
LOUD = {observe.CronSkipped, observe.CronMissed}


@pytest.mark.parametrize("text", EVENTS)
def test_an_event_has_a_one_line_text(text: str):
    """Texts have one line; skipped and missed occurrences are warnings."""
    event = EVENTS[text]
    level = logging.WARNING if type(event) in LOUD else logging.INFO

    assert (text, level, "nightly", "redrive.schedules") == (str(event), event.level, event.name, event.channel)
    assert set(event.labels) <= set(event.arguments())


@pytest.mark.parametrize("text", EVENTS)
def test_an_occurrence_is_counted_by_its_outcome(text: str):
    """Once, under the name of its cron."""
    event = EVENTS[text]

    assert [Measure(OCCURRENCES, 1, ("nightly", event.outcome))] == list(measures(event))


@pytest.fixture
def emitted() -> Iterator[list[observe.Event]]:
    """Return the events of crons, as they are emitted."""
    found: list[observe.Event] = []
    with observe.only(lambda event: found.append(event) if isinstance(event, observe.CronEvent) else None):
        yield found


def play(overlap: str, catch_up: str, emitted: list[observe.Event]) -> list[str]:
    """Run an hourly cron with a first job of three hours, then stop for two; return the texts of the events."""
    clock = VirtualClock(AT - timedelta(minutes=30))
    app = App("memory://", clock=clock)

    @app.cron("@hourly", overlap=overlap, catch_up=catch_up, retry="9 50m 50m")  # type: ignore[call-overload, arg-type]
    def hourly(context: Context) -> None:
        if context.occurs_at == AT and clock.now() < AT + timedelta(hours=2, minutes=30):
            raise ConnectionError("no route")

    drain(app, within="5h", sample=lambda: 1.0)
    clock.advance("2h30m")
    drain(app, within="1s")
    app.close()
    return [type(event).__name__ for event in emitted]


@pytest.mark.parametrize(
    ("overlap", "catch_up", "expected"),
    [
        ("skip", "one", ["CronStarted", "CronSkipped", "CronSkipped", "CronStarted", "CronStarted", "CronStarted"]),
        ("queue", "none", ["CronStarted", "CronQueued", "CronSkipped", "CronStarted", "CronStarted", "CronMissed"]),
    ],
)
def test_the_outcome_of_each_occurrence_is_emitted(
    emitted: list[observe.Event], overlap: str, catch_up: str, expected: list[str]
):
    """Emit each occurrence once, from the process that decided it; a waiting one is not repeated."""
    assert expected == play(overlap, catch_up, emitted)


def test_an_event_shows_how_late_it_is(emitted: list[observe.Event]):
    """Show in the text that the last occurrence waited half an hour for a worker, with its job and occurrence."""
    play("skip", "one", emitted)
    last = emitted[-1]

    assert isinstance(last, observe.CronStarted)
    assert ("hourly", timedelta(minutes=30), True) == (last.schedule, last.late, last.job_id is not None)
    assert "30:00 late" in str(last)
