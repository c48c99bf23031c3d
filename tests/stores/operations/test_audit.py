"""What an entry of the audit log is about."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.stores.operations.audit import LONGEST, about


@pytest.mark.parametrize(
    ("action", "details", "expected"),
    [
        ("queue", {"queue": "mail", "paused_at": "none"}, "queue:mail"),
        ("redrive", {"ids": [7], "queue": "slow"}, "job:7"),
        ("redrive", {"ids": [7, 8], "queue": "slow"}, None),
        ("trigger", {"schedule": "nightly", "ids": [7]}, "schedule:nightly"),
        ("update", {"schedule": "prices", "key": "tea"}, "schedule:prices"),
        ("skip", {"machine": "payment", "key": "card/1"}, "machine:payment/card/1"),
        ("migrate", {"machine": "payment", "old": "a"}, "machine:payment"),
        ("pause", {"topic": "orders", "subscription": "mail"}, "topic:orders/mail"),
        ("prune", {"topic": "orders"}, "topic:orders"),
        ("mute", {"group": "1-0"}, "group:1-0"),
        ("cancel_run", {"ids": [7, 8]}, "job:7"),
        ("start_cancel", {"filter": {"ids": [7]}}, "job:7"),
        ("start_cancel", {"filter": {"ids": [7, 8]}}, None),
        ("start_cancel", {"filter": {"queue": "mail", "task": "send"}}, "queue:mail"),
        ("cancel_run", {"ids": []}, None),
        ("rebase", {"shards": 3}, None),
        ("reset", {"machine": "m", "key": "k" * LONGEST}, None),
    ],
)
def test_an_entry_is_about_one_thing(action: str, details: dict[str, Any], expected: str | None):
    """Changes of several jobs, and of the whole, are about nothing in particular; so are names that fit no index."""
    assert expected == about(action, details)
