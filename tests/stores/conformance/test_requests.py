"""Requests of programs that carry a key of their own."""

from __future__ import annotations

from redrive.stores.operations import requests
from redrive.stores.operations.requests import KEPT, StoredRequest
from tests.stores.helpers import Harness


def test_a_request_with_a_key_is_stored_once(store: Harness):
    """The first request with a key is new; each further one of its actor receives the first one and its answer."""
    first = store.do(requests.begin("ann", "k", "a", now=store.now))
    unanswered = store.do(requests.begin("ann", "k", "b", now=store.now))
    store.do(requests.answered("ann", "k", b"7"))
    other = store.do(requests.begin("bob", "k", "b", now=store.now))

    assert (None, StoredRequest("a"), None) == (first, unanswered, other)
    assert StoredRequest("a", b"7") == store.do(requests.begin("ann", "k", "a", now=store.now))


def test_forgotten_requests_can_be_repeated(store: Harness):
    """Keys are free again after their request was forgotten, and a day after it began."""
    store.do(requests.begin("ann", "refused", "a", now=store.now))
    store.do(requests.forget("ann", "refused"))
    store.do(requests.begin("ann", "old", "a", now=store.now))
    store.do(requests.answered("ann", "old", b"7"))
    again = store.do(requests.begin("ann", "refused", "b", now=store.now))
    store.wait(KEPT.total_seconds())

    assert (None, None) == (again, store.do(requests.begin("ann", "old", "b", now=store.now)))
    assert StoredRequest("b") == store.do(requests.begin("ann", "old", "c", now=store.now))
