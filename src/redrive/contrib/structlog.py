"""A sink that writes events with structlog, and adds the job to the log lines of its handler.

Add it once::

    from redrive import observe
    from redrive.contrib.structlog import log

    observe.add(log)
    observe.remove(observe.log)  # else each event is also written by `logging`
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from redrive.contrib import extra
from redrive.observe import Event, JobStarted
from redrive.observe.logs import TRACEBACK, facts
from redrive.visible import visible

with extra("structlog"):
    import structlog

__all__ = ["log"]


def log(event: Event) -> AbstractContextManager[Any] | None:
    """Write an event with structlog. For `JobStarted`, return a block that binds the job while its handler runs."""
    # structlog writes the key `exception` as a traceback, below the line.
    renamed = {TRACEBACK: "exception"}
    fields = {renamed.get(name, name): fact for name, fact in facts(event) if name != "event"}
    structlog.get_logger(event.channel).log(event.level, visible(str(event)), **fields)
    if isinstance(event, JobStarted):
        return structlog.contextvars.bound_contextvars(
            job_id=event.job_id, task=visible(event.task), attempt=event.attempt
        )
    return None
