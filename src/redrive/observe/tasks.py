"""The events of tasks of Celery and actors of Dramatiq that run under a policy (`redrive.contrib`)."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import ClassVar

from redrive.observe.events import Event, what
from redrive.policy import Failure, format_duration


class TaskEvent(Event, kw_only=True):
    """An event of a task of Celery, or of an actor of Dramatiq."""

    #: The name of the logger, by the engine.
    channel: str = "redrive.celery"  # type: ignore[misc] # of one class elsewhere
    labels: ClassVar[tuple[str, ...]] = ("task", "rule")
    #: The name of the task.
    task: str
    #: The id that the engine has given to the call; the same in all of its attempts.
    task_id: str
    #: The number of executions that are charged, this one included.
    attempt: int
    failure: Failure
    #: The part of the policy that decided, as in the decisions of `redrive.policy`; or ``crash``, ``poison limit``,
    #: ``time_limit`` and ``catch``.
    rule: str

    @property
    def name(self) -> str:
        """The task."""
        return self.task

    @property
    def _task(self) -> str:
        return f"{self.task}[{self.task_id}]"


class TaskRetryScheduled(TaskEvent, kw_only=True):
    """An attempt has failed, and the message of the next one is sent."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "failed"
    #: The time until the next attempt.
    delay: timedelta

    def __str__(self) -> str:
        return (
            f"{self._task} is retried in {format_duration(self.delay)} ({self.rule}): "
            f"attempt {self.attempt} failed: {what(self.failure)}"
        )


class TaskGaveUp(TaskEvent, kw_only=True):
    """The task has failed, and no attempt follows."""

    level: ClassVar[int] = logging.ERROR
    outcome: ClassVar[str] = "gave up"
    #: The reason as a sentence.
    why: str
    #: The catch task that was sent, if the policy names one.
    catch: str | None = None

    def __str__(self) -> str:
        follows = f"; {self.catch} catches it" if self.catch else ""
        last = what(self.failure)
        return (
            f"{self._task} gave up at attempt {self.attempt} ({self.rule}): {self.why}; last failure: {last}{follows}"
        )


class TaskLost(TaskEvent, kw_only=True):
    """The process that executed the task was lost, and the task runs again; no attempt is charged."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "lost"
    #: Processes that were lost in a row.
    lost: int

    def __str__(self) -> str:
        return f"{self._task} runs again after process {self.lost} was lost: {what(self.failure)}"
