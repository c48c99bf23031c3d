"""Events as structlog's log lines, and what a handler logs tied to its job.

A sink, to be added once::

    from redrive import observe
    from redrive.contrib.structlog import log

    observe.add(log)

Each event is one line of the logger that `redrive.observe.Event.channel` names: the text for people, and its facts as
keys (`redrive.observe.facts`). While a handler runs, ``job_id``, ``task`` and ``attempt`` are bound to structlog's
context variables, so that every line that the handler writes, also from a thread, says whose it is. They show where
`structlog.contextvars.merge_contextvars` is one of the processors, as it is by default.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import structlog

from redrive.observe import Event, JobStarted
from redrive.observe.facts import facts
from redrive.visible import visible

__all__ = ["log"]


def log(event: Event) -> AbstractContextManager[Any] | None:
    """The sink that writes events with structlog.

    Args:
        event: what has happened.

    Returns:
        For `JobStarted`, what binds the job while its handler runs.
    """
    said = {name: fact for name, fact in facts(event) if name != "event"}
    structlog.get_logger(event.channel).log(event.level, visible(str(event)), **said)
    if isinstance(event, JobStarted):
        return structlog.contextvars.bound_contextvars(
            job_id=event.job_id, task=visible(event.task), attempt=event.attempt
        )
    return None
