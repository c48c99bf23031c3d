"""What a catch task receives, and the rules it must obey (seed 001).

After the last failure of a job its catch task runs, as a durable job of its own. It gets the request that failed, the
error, and every attempt. It returns nothing. If it fails, it is tried again until it succeeds.

The rules are checked as soon as both tasks are known: at import where the annotations can be resolved, at the latest
when the app is first used. FTL checked them only within one module; here it makes no difference where the catch lives.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redrive.app.payload import Signature, type_name
from redrive.engine.records import AttemptRecord
from redrive.errors import CatchDefinitionError, TaskDefinitionError

__all__ = ["CatchRequest", "catches", "check_catch", "wanted_request"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CatchRequest(Generic[T]):
    """What a catch task receives.

    Attributes:
        task: name of the task that gave up.
        request: its argument; a mapping of names where it takes several, or where the stored arguments are not those of
            its present parameters.
        request_type: the annotation of that argument, as text; that of a dictionary for a mapping of names.
        error: the last error of that task, never one of the catch task itself; "unknown error" where it has no text.
        attempts: every execution, oldest first.
        job_id: the job that gave up.
    """

    task: str
    request: T
    request_type: str
    error: str
    attempts: tuple[AttemptRecord, ...]
    job_id: int


def wanted_request(catch: Signature) -> Any:  # noqa: ANN401 - a type form
    """Find the ``T`` of a catch task's ``CatchRequest[T]``.

    Args:
        catch: its signature.

    Returns:
        The type; Any for a bare ``CatchRequest``.

    Raises:
        CatchDefinitionError: it does not take a catch request.
    """
    hint = catch.hints.get(catch.payload[0]) if len(catch.payload) == 1 else None
    if hint is CatchRequest:
        return Any
    if typing.get_origin(hint) is not CatchRequest:
        found = ", ".join(f"{name}: {type_name(catch.hints.get(name, Any))}" for name in catch.payload) or "nothing"
        message = (
            f"catch task {catch.name!r} must take exactly one CatchRequest[...] (and a Context, if it likes), "
            f"but it takes {found}"
        )
        raise CatchDefinitionError(message)
    (wanted,) = typing.get_args(hint)
    return wanted


def catches(task: Signature) -> bool:
    """Return True if a task can be a catch task, which takes a `CatchRequest` and nothing else.

    Args:
        task: its signature.
    """
    try:
        wanted_request(task)
    except (CatchDefinitionError, TaskDefinitionError):
        return False
    return True


def check_catch(task: Signature, catch: Signature) -> None:
    """Check that ``catch`` may catch for ``task``.

    Args:
        task: the task whose policy names it.
        catch: the catch task.

    Raises:
        CatchDefinitionError: it takes another request, or returns something.
    """
    wanted = wanted_request(catch)
    if wanted not in (Any, object) and wanted != task.request:
        message = (
            f"task {task.name!r} is caught by {catch.name!r}, which takes CatchRequest[{type_name(wanted)}]; it would "
            f"have to take CatchRequest[{type_name(task.request)}] or CatchRequest[Any]"
        )
        raise CatchDefinitionError(message)
    returned = catch.hints.get("return", type(None))
    if returned is not type(None):
        message = f"catch task {catch.name!r} must return nothing (-> None), but it returns {type_name(returned)}"
        raise CatchDefinitionError(message)
