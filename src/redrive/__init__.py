"""One retry policy, from a function call to a fleet.

The public names are imported at their first use, so that ``import redrive`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive import observe
    from redrive.app.app import App
    from redrive.app.catch import CatchRequest
    from redrive.app.collection import Tasks
    from redrive.app.context import Context, Pending, Stop
    from redrive.app.cron import Cron
    from redrive.app.flow import Flow
    from redrive.app.instance import MachineInstance
    from redrive.app.job import Job
    from redrive.app.machine import Machine
    from redrive.app.refresh import Refresh
    from redrive.app.run import Run
    from redrive.app.subscription import Subscription
    from redrive.app.sync_flow import SyncFlow
    from redrive.app.task import Task
    from redrive.app.topic import Topic
    from redrive.app.workflow import Workflow
    from redrive.engine.items import Disabled
    from redrive.engine.machine import FailedTransition
    from redrive.engine.records import Filter
    from redrive.errors import Cancel, CancelRequested, GiveUp, RedriveError, RetryAfter, Snooze, SoftTimeout
    from redrive.policy import Backoff, Policy, Rule
    from redrive.retrying import (
        Deferred,
        GaveUp,
        Ok,
        RetryDetails,
        attempt,
        deadline,
        disable,
        disabled,
        enable,
        resume,
        retry,
    )
    from redrive.schedule import RefreshPolicy

__all__ = [
    "App",
    "Backoff",
    "Cancel",
    "CancelRequested",
    "CatchRequest",
    "Context",
    "Cron",
    "Deferred",
    "Disabled",
    "FailedTransition",
    "Filter",
    "Flow",
    "GaveUp",
    "GiveUp",
    "Job",
    "Machine",
    "MachineInstance",
    "Ok",
    "Pending",
    "Policy",
    "RedriveError",
    "Refresh",
    "RefreshPolicy",
    "RetryAfter",
    "RetryDetails",
    "Rule",
    "Run",
    "Snooze",
    "SoftTimeout",
    "Stop",
    "Subscription",
    "SyncFlow",
    "Task",
    "Tasks",
    "Topic",
    "Workflow",
    "attempt",
    "deadline",
    "disable",
    "disabled",
    "enable",
    "observe",
    "resume",
    "retry",
]

__version__ = "0.1.0"

_HOMES = {
    "App": "redrive.app.app",
    "Backoff": "redrive.policy",
    "Cancel": "redrive.errors",
    "CancelRequested": "redrive.errors",
    "CatchRequest": "redrive.app.catch",
    "Context": "redrive.app.context",
    "Cron": "redrive.app.cron",
    "Deferred": "redrive.retrying",
    "Disabled": "redrive.engine.items",
    "FailedTransition": "redrive.engine.machine",
    "Filter": "redrive.engine.records",
    "Flow": "redrive.app.flow",
    "GaveUp": "redrive.retrying",
    "GiveUp": "redrive.errors",
    "Job": "redrive.app.job",
    "Machine": "redrive.app.machine",
    "MachineInstance": "redrive.app.instance",
    "Ok": "redrive.retrying",
    "Pending": "redrive.app.context",
    "Policy": "redrive.policy",
    "RedriveError": "redrive.errors",
    "Refresh": "redrive.app.refresh",
    "RefreshPolicy": "redrive.schedule",
    "RetryAfter": "redrive.errors",
    "RetryDetails": "redrive.retrying",
    "Rule": "redrive.policy",
    "Run": "redrive.app.run",
    "Snooze": "redrive.errors",
    "SoftTimeout": "redrive.errors",
    "Stop": "redrive.app.context",
    "SyncFlow": "redrive.app.sync_flow",
    "Subscription": "redrive.app.subscription",
    "Task": "redrive.app.task",
    "Tasks": "redrive.app.collection",
    "Workflow": "redrive.app.workflow",
    "Topic": "redrive.app.topic",
    "attempt": "redrive.retrying",
    "deadline": "redrive.retrying",
    "disable": "redrive.retrying",
    "disabled": "redrive.retrying",
    "enable": "redrive.retrying",
    "observe": "redrive",
    "resume": "redrive.retrying",
    "retry": "redrive.retrying",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Load a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'redrive' has no attribute {name!r}"
        raise AttributeError(message)
    is_module = home == __name__
    value = importlib.import_module(f"{home}.{name}") if is_module else getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted([*__all__, "__version__"])
