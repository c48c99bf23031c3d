"""Events: frozen values with a text of one line."""

from __future__ import annotations

import logging
import pickle
from datetime import UTC, datetime, timedelta

import pytest

from redrive.observe import CallDeferred, CallGaveUp, CallRetryScheduled, CallSucceeded, Event
from redrive.policy import Failure

SECOND = timedelta(seconds=1)
FAILURE = Failure(("builtins.ConnectionError", "builtins.OSError", "builtins.Exception"), "connection refused")
RESULT = Failure((), "", "RESULT")
SCHEDULED = CallRetryScheduled(
    name="app.fetch", attempt=2, failure=FAILURE, delay=2 * SECOND, rule="backoff", waited=SECOND, elapsed=2 * SECOND
)
SUCCEEDED = CallSucceeded(name="app.fetch", attempts=3, elapsed=4 * SECOND, waited=3 * SECOND)
GAVE_UP = CallGaveUp(
    name="app.fetch",
    attempts=1,
    elapsed=SECOND,
    waited=0 * SECOND,
    rule="attempts",
    why="1 of 1 attempts failed",
    failure=RESULT,
)
DEFERRED = CallDeferred(
    name="app.fetch",
    attempts=3,
    elapsed=4 * SECOND,
    waited=3 * SECOND,
    at=datetime(2026, 1, 1, tzinfo=UTC),
    rule="hint",
    failure=FAILURE,
)
EVENTS = [SCHEDULED, SUCCEEDED, GAVE_UP, DEFERRED]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_a_value(event):
    """Events are frozen, hashable, equal to their copies, and can be pickled."""
    with pytest.raises(AttributeError):
        event.name = "another"

    copy = pickle.loads(pickle.dumps(event))
    assert event == copy
    assert hash(event) == hash(copy)
    assert event != event.with_(name="another")


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (
            SCHEDULED,
            logging.WARNING,
            "app.fetch is retried in 2s (backoff): attempt 2 failed: ConnectionError: connection refused",
        ),
        (
            SCHEDULED.with_(max_attempts=4),
            logging.WARNING,
            "app.fetch is retried in 2s (backoff): attempt 2 of 4 failed: ConnectionError: connection refused",
        ),
        (SUCCEEDED, logging.INFO, "app.fetch succeeded after 3 attempts in 4.00 s"),
        (
            GAVE_UP,
            logging.WARNING,
            "app.fetch gave up after 1 attempt in 1.00 s: 1 of 1 attempts failed; last failure: RESULT",
        ),
        (
            GAVE_UP.with_(failure=None, attempts=0),
            logging.WARNING,
            "app.fetch gave up after 0 attempts in 1.00 s: 1 of 1 attempts failed",
        ),
        (
            DEFERRED,
            logging.INFO,
            "app.fetch is deferred to 2026-01-01 00:00:00 UTC (hint) after 3 attempts in 4.00 s",
        ),
    ],
)
def test_an_event_has_a_text(event, level, text):
    """Texts of events are one line, and each event has a log level."""
    assert (level, text) == (event.level, str(event))
    assert ("redrive.calls", "app.fetch") == (event.channel, event.name)


def test_the_class_of_an_event_names_its_subject():
    """Classes name the subject of their events; the base class has no name of its own."""
    with pytest.raises(NotImplementedError):
        _ = Event().name
