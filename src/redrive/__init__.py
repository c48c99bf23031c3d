"""One retry policy, from a function call to a fleet.

The names below are the public surface for everyday use. They are loaded at their first use (law 10: only what is paid
for), so that ``import redrive`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.app.app import App
    from redrive.app.catch import CatchRequest
    from redrive.app.context import Context
    from redrive.app.job import Job
    from redrive.app.task import Task
    from redrive.engine.select import Filter
    from redrive.errors import Cancel, GiveUp, RedriveError, RetryAfter, Snooze
    from redrive.policy import Backoff, Policy, Rule
    from redrive.retrying import Deferred, GaveUp, Ok, deadline, disabled, resume, retry

__all__ = [
    "App",
    "Backoff",
    "Cancel",
    "CatchRequest",
    "Context",
    "Deferred",
    "Filter",
    "GaveUp",
    "GiveUp",
    "Job",
    "Ok",
    "Policy",
    "RedriveError",
    "RetryAfter",
    "Rule",
    "Snooze",
    "Task",
    "deadline",
    "disabled",
    "resume",
    "retry",
]

__version__ = "0.1.0"

_HOMES = {
    "App": "redrive.app.app",
    "Backoff": "redrive.policy",
    "Cancel": "redrive.errors",
    "CatchRequest": "redrive.app.catch",
    "Context": "redrive.app.context",
    "Deferred": "redrive.retrying",
    "Filter": "redrive.engine.select",
    "GaveUp": "redrive.retrying",
    "GiveUp": "redrive.errors",
    "Job": "redrive.app.job",
    "Ok": "redrive.retrying",
    "Policy": "redrive.policy",
    "RedriveError": "redrive.errors",
    "RetryAfter": "redrive.errors",
    "Rule": "redrive.policy",
    "Snooze": "redrive.errors",
    "Task": "redrive.app.task",
    "deadline": "redrive.retrying",
    "disabled": "redrive.retrying",
    "resume": "redrive.retrying",
    "retry": "redrive.retrying",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Load a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'redrive' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted([*__all__, "__version__"])
