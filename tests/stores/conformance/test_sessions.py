"""Logins on the dashboard."""

from __future__ import annotations

from datetime import timedelta

from redrive.stores.operations import sessions
from redrive.stores.operations.sessions import Session
from tests.stores.helpers import Harness

HOUR = timedelta(hours=1)


def test_a_session_is_found_until_it_ends(store: Harness):
    """A session is found by its digest until it is deleted; a second deletion changes nothing."""
    store.do(sessions.begin("a", Session("ann", "1"), lasts=HOUR, now=store.now))
    found = store.do(sessions.find("a", now=store.now)), store.do(sessions.find("b", now=store.now))
    for _ in range(2):
        store.do(sessions.end("a"))

    assert (Session("ann", "1"), None) == found
    assert store.do(sessions.find("a", now=store.now)) is None


def test_a_session_expires(store: Harness):
    """A session is found for a limited time, and a later login deletes it."""
    store.do(sessions.begin("a", Session("ann", "1"), lasts=HOUR, now=store.now))
    store.wait(3599)
    before = store.do(sessions.find("a", now=store.now))
    store.wait(1)
    store.do(sessions.begin("b", Session("ann", "1"), lasts=HOUR, now=store.now))

    assert before is not None
    assert store.do(sessions.find("a", now=store.now)) is None
    assert store.do(sessions.find("a", now=store.now - timedelta(seconds=1))) is None


def test_the_clock_of_the_database_decides(store: Harness):
    """Without an instant a session lasts by the clock of the database."""
    store.do(sessions.begin("a", Session("ann", "1"), lasts=HOUR))
    store.do(sessions.begin("b", Session("ann", "1"), lasts=-HOUR))

    assert Session("ann", "1") == store.do(sessions.find("a"))
    assert store.do(sessions.find("b")) is None
