"""The catch task: where it is found, and when it is sent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kombu.exceptions import OperationalError

from redrive import observe
from redrive.contrib.celery.message import CATCH, Message
from redrive.contrib.other_engines import TEXT, CatchRequest, argument_of
from redrive.errors import ConfigurationError
from redrive.policy import Failure, GiveUp
from redrive.policy.carried import CarriedAttempt


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
        text = failure.message[:TEXT] or decision.why
        request = CatchRequest(
            task.name, argument_of(task.parameters, message.args, message.kwargs), text, past.attempts, message.id
        )
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
