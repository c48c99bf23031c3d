"""Tasks with ``executor="process"``: which functions a child process can import, and how it finds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from redrive.app.loading import import_module
from redrive.app.tasks.catch import catches
from redrive.app.tasks.task import Task
from redrive.errors import TaskDefinitionError

EXECUTORS = ("thread", "process")


class Place(NamedTuple):
    """The module and the qualified name of a function."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def checked_executor(executor: object, function: Callable[..., Any], label: str) -> None:
    """Check the option ``executor=`` of a task as far as its declaration can show."""
    if executor not in EXECUTORS:
        raise TaskDefinitionError(f'task {label!r}: executor= is "thread" or "process", got {executor!r}')
    if executor == "thread":
        return
    if inspect.iscoroutinefunction(function):
        raise TaskDefinitionError(
            f'task {label!r} is async, and executor="process" takes a def function: a child process has no event loop'
        )
    name = function.__qualname__
    if "<" in name:
        raise TaskDefinitionError(
            f'task {label!r}: executor="process" takes a function that a child process can import, and '
            f"{function.__module__}.{name} is local: write it at the top of a module"
        )


def check_importable(task: Task[Any, Any, Any]) -> Place:
    """Return where a child process finds the function of a task; raise `TaskDefinitionError` if it cannot."""
    place = Place(task.function.__module__, task.function.__qualname__)
    if place.module == "__main__":
        raise TaskDefinitionError(
            f'task {task.name!r}: executor="process" takes a function of a module that can be imported, and this one '
            "belongs to the program itself (__main__): move it into a module, and import that"
        )
    if catches(task.signature):
        raise TaskDefinitionError(
            f'task {task.name!r} is a catch task, and executor="process" is for tasks with arguments of their own: '
            "let it enqueue such a task"
        )
    try:
        found = find(place)
    except (ImportError, AttributeError):
        found = None
    if found is not task.function:
        raise TaskDefinitionError(
            f'task {task.name!r}: executor="process" takes a function that a child process can import, and {place} is '
            f"{'not there' if found is None else 'another object'}: leave the function under its name in its module"
        )
    return place


def find(place: Place) -> Any:
    """Import a module and return the function of a qualified name in it; that of a task instead of the task."""
    found: Any = import_module(place.module)
    for part in place.name.split("."):
        found = getattr(found, part)
    while isinstance(found, Task):
        found = found.function
    return found
