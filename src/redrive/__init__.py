"""One retry policy, from a function call to a fleet.

The public names are imported at their first use, so that ``import redrive`` is fast.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive import observe
    from redrive.app.app import App
    from redrive.app.attempts.around import EnqueueRequest, Execution
    from redrive.app.attempts.context import Context, Pending, Stop
    from redrive.app.declarations import Tasks
    from redrive.app.flows.flow import Flow, current_flow
    from redrive.app.flows.run import Run
    from redrive.app.flows.sync_flow import SyncFlow
    from redrive.app.flows.workflow import Workflow
    from redrive.app.machines.instance import MachineInstance
    from redrive.app.machines.machine import Machine
    from redrive.app.recurring.cron import Cron
    from redrive.app.recurring.refresh import Refresh
    from redrive.app.tasks.batch import Batch
    from redrive.app.tasks.catch import CatchRequest
    from redrive.app.tasks.job import Job
    from redrive.app.tasks.task import Task
    from redrive.app.topics.subscription import Subscription
    from redrive.app.topics.topic import Topic
    from redrive.engine.items import Disabled
    from redrive.engine.machine import FailedTransition
    from redrive.engine.records import Filter
    from redrive.engine.topics import DeadLetter
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
    from redrive.version import __version__ as __version__

__all__ = [
    "App",
    "Backoff",
    "Batch",
    "Cancel",
    "CancelRequested",
    "CatchRequest",
    "Context",
    "Cron",
    "DeadLetter",
    "Deferred",
    "Disabled",
    "EnqueueRequest",
    "Execution",
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
    "current_flow",
    "deadline",
    "disable",
    "disabled",
    "enable",
    "observe",
    "resume",
    "retry",
]

_HOMES = {
    "__version__": "redrive.version",
    "App": "redrive.app.app",
    "Backoff": "redrive.policy",
    "Batch": "redrive.app.tasks.batch",
    "Cancel": "redrive.errors",
    "CancelRequested": "redrive.errors",
    "CatchRequest": "redrive.app.tasks.catch",
    "Context": "redrive.app.attempts.context",
    "Cron": "redrive.app.recurring.cron",
    "DeadLetter": "redrive.engine.topics",
    "Deferred": "redrive.retrying",
    "Disabled": "redrive.engine.items",
    "EnqueueRequest": "redrive.app.attempts.around",
    "Execution": "redrive.app.attempts.around",
    "FailedTransition": "redrive.engine.machine",
    "Filter": "redrive.engine.records",
    "Flow": "redrive.app.flows.flow",
    "GaveUp": "redrive.retrying",
    "GiveUp": "redrive.errors",
    "Job": "redrive.app.tasks.job",
    "Machine": "redrive.app.machines.machine",
    "MachineInstance": "redrive.app.machines.instance",
    "Ok": "redrive.retrying",
    "Pending": "redrive.app.attempts.context",
    "Policy": "redrive.policy",
    "RedriveError": "redrive.errors",
    "Refresh": "redrive.app.recurring.refresh",
    "RefreshPolicy": "redrive.schedule",
    "RetryAfter": "redrive.errors",
    "RetryDetails": "redrive.retrying",
    "Rule": "redrive.policy",
    "Run": "redrive.app.flows.run",
    "Snooze": "redrive.errors",
    "SoftTimeout": "redrive.errors",
    "Stop": "redrive.app.attempts.context",
    "SyncFlow": "redrive.app.flows.sync_flow",
    "Subscription": "redrive.app.topics.subscription",
    "Task": "redrive.app.tasks.task",
    "Tasks": "redrive.app.declarations",
    "Workflow": "redrive.app.flows.workflow",
    "Topic": "redrive.app.topics.topic",
    "attempt": "redrive.retrying",
    "current_flow": "redrive.app.flows.flow",
    "deadline": "redrive.retrying",
    "disable": "redrive.retrying",
    "disabled": "redrive.retrying",
    "enable": "redrive.retrying",
    "observe": "redrive",
    "resume": "redrive.retrying",
    "retry": "redrive.retrying",
}


if not TYPE_CHECKING:  # type checkers report a name that the package does not have

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
        """Load a public name at its first use."""
        home = _HOMES.get(name)
        if home is None:
            caller = sys._getframe(1)
            # An import of a module of the package looks here first, and no one reads the error.
            if caller.f_code.co_name == "_handle_fromlist":
                raise AttributeError(name)
            from redrive.vocabulary import no_name

            raise no_name(sys.modules[__name__], name, caller)
        is_module = home == __name__
        value = importlib.import_module(f"{home}.{name}") if is_module else getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted([*__all__, "__version__"])
