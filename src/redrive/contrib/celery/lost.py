"""What the main process of a worker does about a task whose process has ended: it was killed, or a hard time limit.

No code of the task runs there. Celery sends the message again by itself (``retry_on_worker_lost``), and the task fails
if that raises an exception.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from celery import current_task, signals
from celery.exceptions import TimeLimitExceeded, WorkerLostError

from redrive import observe
from redrive.contrib.celery.catch import end
from redrive.contrib.celery.message import Message
from redrive.engine.lease import POISON_LIMIT
from redrive.engine.settle import catch_wait
from redrive.errors import PolicyValueError, RedriveError
from redrive.policy import Failure, GiveUp, Policy, Stage, parse_duration

# The wait of a message after the process that executed it was lost.
_PAUSE = parse_duration("1s")

_REASONS = {"not_idempotent": "LOST_IN_FLIGHT", "poison limit": "POISON"}


def in_task() -> bool:
    """Return True in the process, and the thread, of a task."""
    return bool(current_task)


def again(task: Any, request: Any) -> Any:
    """Return the message that Celery sends after it has lost the process of a task.

    Raises:
        RedriveError: the task is not repeated.
    """
    message = _read(task, request)
    past = message.past._replace(lost=message.past.lost + 1)
    delay = _PAUSE
    if message.every is not None:
        delay = max(delay, catch_wait(message.every, past.lost) if past.lost >= POISON_LIMIT else delay)
    else:
        over = _over(task.policy, message)
        if over is not None:
            raise RedriveError(over.why)
    made = message.signature(past, delay)
    observe.emit(
        observe.TaskLost(
            task=task.name,
            task_id=message.id,
            attempt=past.history.attempts,
            failure=Failure((), "its process was lost", "WORKER_LOST", Stage.IN_FLIGHT),
            rule="crash",
            lost=past.lost,
        )
    )
    return made


def failed(sender: Any = None, task_id: str = "", exception: object = None, **_: object) -> None:
    """Give up a task that Celery does not repeat, and send its catch task; a catch task itself is repeated."""
    policy: Policy | None = getattr(sender, "policy", None)
    is_ours = policy is not None or hasattr(sender, "hop")
    if not is_ours or in_task() or not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    request = sender.request
    # After a hard time limit the signal comes twice, the second time without the message.
    if request.id != task_id:
        return
    message = _read(sender, request)
    if message.every is not None:
        message.signature(message.past, max(message.every, _PAUSE)).apply_async()
    elif policy is not None:
        is_limit = isinstance(exception, TimeLimitExceeded)
        over = None if is_limit else _over(policy, message)
        over = over or GiveUp(f"{exception}, and Celery does not repeat it", "time_limit" if is_limit else "crash")
        reason = "TIMEOUT" if is_limit else _REASONS.get(over.rule, "WORKER_LOST")
        end(message, Failure.of(exception, reason=reason, stage=Stage.IN_FLIGHT), over, message.at)


# Celery keeps weak references to receivers, and this one once, however often the module is loaded.
signals.task_failure.connect(failed, weak=False, dispatch_uid="redrive.contrib.celery")


def _read(task: Any, request: Any) -> Message:
    message = Message(task, request)
    # The next attempt refuses a message that cannot be read.
    with suppress(PolicyValueError):
        message.read()
    return message


def _over(policy: Policy, message: Message) -> GiveUp | None:
    """Return the end of a call that is not repeated after its process was lost."""
    lost = message.past.lost + 1
    if policy.idempotent is False:
        why = "its process was lost in flight, and the task is declared idempotent=False: not repeated"
        return GiveUp(why, "not_idempotent")
    if lost >= POISON_LIMIT:
        return GiveUp(f"{lost} processes in a row were lost: presumed to kill its workers", "poison limit")
    return message.expires_by(message.clock.now() + _PAUSE)
