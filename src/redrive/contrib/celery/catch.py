"""The catch task: what it receives, and when it is sent."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from kombu.exceptions import OperationalError

from redrive import observe
from redrive.contrib.celery.message import CATCH, Message
from redrive.errors import ConfigurationError
from redrive.policy import Failure, GiveUp
from redrive.policy.carried import CarriedAttempt

T = TypeVar("T")

_TEXT = 4_000
"""Characters of the last error."""


@dataclass(frozen=True)
class CatchRequest(Generic[T]):
    """The argument of a catch task.

    Attributes:
        task: name of the task that gave up.
        request: its argument; a mapping of names if it takes several.
        error: its last error.
        attempts: the last 20 attempts, oldest first.
        task_id: the id of the task that gave up. The id of the catch task is the same with ``-catch`` behind it.
    """

    task: str
    request: T
    error: str
    attempts: tuple[CarriedAttempt, ...]
    task_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the request as the argument of a message."""
        return {**vars(self), "attempts": [each.to_list() for each in self.attempts]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CatchRequest[Any]:
        """Build the request from the result of `to_dict`."""
        return cls(**{**data, "attempts": tuple([CarriedAttempt.from_list(each) for each in data["attempts"]])})


def find(app: Any, task: str, catch: str) -> Any:
    """Return the catch task of a task: by its name, or by the end of it, in the same module or else in one of the app.

    Raises:
        ConfigurationError: the app has no such task, or several of them.
    """
    names = [each for each in app.tasks if each == catch or each.endswith(f".{catch}")]
    exact = [each for each in names if each in (catch, f"{task.rpartition('.')[0]}.{catch}")]
    found = exact[:1] or names
    if len(found) != 1:
        several = f"; it may be one of {', '.join(sorted(found))}" if found else ""
        raise ConfigurationError(f"task {task!r} is to be caught by {catch!r}, but there is no such task{several}")
    return app.tasks[found[0]]


def end(message: Message, failure: Failure, decision: GiveUp, began: datetime) -> None:
    """Send the catch task of a task that gave up, and emit the event.

    Raises:
        Reject: the broker cannot be reached; the message of the task returns to its queue.
    """
    task, past = message.task, message.past
    past = past.followed_by(CarriedAttempt.of(failure, began, decision.rule))
    catch = None
    if message.every is None and task.policy is not None and task.policy.catch is not None:
        catch = find(task.app, task.name, task.policy.catch)
        text = failure.message[:_TEXT] or decision.why
        request = CatchRequest(task.name, _argument(message), text, past.attempts, message.id)
        send = catch.apply if message.is_eager else catch.apply_async
        headers = {CATCH: task.policy.catch_delay.total_seconds()}
        try:
            send((request.to_dict(),), task_id=f"{message.id}-catch", headers=headers, serializer=task.serializer)
        except OperationalError as unreachable:
            message.hand_back(unreachable)
    observe.emit(
        observe.TaskGaveUp(
            task=task.name,
            task_id=message.id,
            attempt=past.history.attempts,
            failure=failure,
            rule=decision.rule,
            why=decision.why,
            catch=None if catch is None else catch.name,
        )
    )


def _argument(message: Message) -> object:
    """Return the argument of a task; a mapping of names if it takes several, or none."""
    signature: inspect.Signature = message.task.parameters
    try:
        given = dict(signature.bind(*message.args, **message.kwargs).arguments)
    except TypeError:  # the task does not take its arguments, which is its failure
        return {"args": list(message.args), **message.kwargs}
    return next(iter(given.values())) if len(signature.parameters) == len(given) == 1 else given
