"""The request of a catch task, and the checks of its signature.

After the last failure of a job its catch task runs, as a durable job of its own, until it succeeds. Signatures are
checked at import if the annotations can be resolved, and at the first use of the app otherwise.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redrive.app.payload import Signature
from redrive.app.types import covers, members_of, type_name, unsupported
from redrive.engine.records import AttemptRecord
from redrive.errors import CatchDefinitionError, TaskDefinitionError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CatchRequest(Generic[T]):
    """The argument of a catch task.

    Attributes:
        task: name of the task that gave up.
        request: its argument; a mapping of names if it takes several, or if its parameters were changed since.
        request_type: the annotation of that argument, as text; that of a dictionary for a mapping of names.
        error: the last error of that task, never one of the catch task itself; "unknown error" if it has no text.
        attempts: every execution, oldest first.
        job_id: the job that gave up.
    """

    task: str
    request: T
    request_type: str
    error: str
    attempts: tuple[AttemptRecord, ...]
    job_id: int


def request_hint(catch: Signature) -> Any:
    """Return the ``T`` of a catch task's ``CatchRequest[T]``, Any for a bare ``CatchRequest``."""
    hint = catch.hints.get(catch.payload[0]) if len(catch.payload) == 1 else None
    if hint is CatchRequest:
        return Any
    if typing.get_origin(hint) is not CatchRequest:
        found = ", ".join(f"{name}: {type_name(catch.hints.get(name, Any))}" for name in catch.payload) or "nothing"
        raise CatchDefinitionError(
            f"catch task {catch.name!r} must take exactly one CatchRequest[...] (and a Context, if needed), "
            f"but it takes {found}"
        )
    (request,) = typing.get_args(hint)
    return request


def catches(task: Signature) -> bool:
    """Return True if a task takes only a `CatchRequest`, as a catch task must."""
    try:
        request_hint(task)
    except (CatchDefinitionError, TaskDefinitionError):
        return False
    return True


def check_request_types(task: Signature) -> bool:
    """Check that each type that a catch task takes can be read from JSON; return False for another task.

    The classes of a union need not be told apart, because the request has the class of the task that gave up.
    """
    if not catches(task):
        return False
    for each in members_of(request_hint(task)):
        problem = unsupported(each)
        if problem:
            raise TaskDefinitionError(f"catch task {task.name!r}: its request cannot be read from JSON: {problem}")
    return True


def check_catch(task: Signature, catch: Signature) -> None:
    """Check that ``catch`` can be the catch task of ``task``: it takes its request, and returns nothing."""
    hint = request_hint(catch)
    if hint not in (Any, object) and not covers(hint, task.request):
        raise CatchDefinitionError(
            f"task {task.name!r} is caught by {catch.name!r}, which takes CatchRequest[{type_name(hint)}]; it would "
            f"have to take CatchRequest[{type_name(task.request)}] or CatchRequest[Any]"
        )
    returned = catch.hints.get("return", type(None))
    if returned is not type(None):
        raise CatchDefinitionError(
            f"catch task {catch.name!r} must return nothing (-> None), but it returns {type_name(returned)}"
        )
