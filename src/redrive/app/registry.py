"""The tasks of an app, with unique names, and the checks that tasks that name each other fit."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from redrive.app.catch import catches, check_catch
from redrive.app.payload import Signature
from redrive.app.task import Task
from redrive.errors import CatchDefinitionError, ConfigurationError, RedriveError, TaskDefinitionError
from redrive.policy import Policy
from redrive.stores.urls import cleared

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class Registry:
    """The tasks of one app by name.

    Args:
        include: modules to import before the tasks are complete.
    """

    def __init__(self, include: Iterable[str]) -> None:
        self.tasks: dict[str, Task[Any, Any, Any]] = {}
        self._include = tuple(include)
        self._checked = 0
        self._served: frozenset[str] = frozenset()
        self._served_of: tuple[str, ...] = ()

    def add(self, task: Task[P, R, C]) -> Task[P, R, C]:
        """Register a task after the checks that are possible at import, and return it.

        Raises:
            TaskDefinitionError: a name is taken, or a parameter has a reserved name.
            CatchDefinitionError: a catch task takes another request, or returns something.
        """
        self._check_names(task)
        if "using" in task.signature.parameters:
            message = f"task {task.name!r}: a parameter cannot be called 'using', which enqueue() takes itself"
            raise TaskDefinitionError(message)
        self.tasks[task.name] = task
        self._check_catches_of(task)
        return task

    def _check_names(self, task: Task[Any, Any, Any]) -> None:
        for name in task.names:
            other = self._named(name)
            if other is not None:
                places = " and ".join(_place(each) for each in (other, task))
                renamed = "" if name == other.name == task.name else ", or leave it out of aka="
                message = (
                    f"two tasks are called {name!r}: {places}. Give one another name: @app.task(name=...){renamed}"
                )
                raise TaskDefinitionError(message)

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Find a task by ``task`` or by ``module.task``; see `redrive.App.find`."""
        found = self._named(name)
        if found is None:
            module, _, short = name.rpartition(".")
            found = self._named(short)
            return found if found is not None and _in_module(found, module) else None
        return found

    def _named(self, name: str) -> Task[Any, Any, Any] | None:
        found = self.tasks.get(name)
        return found or next((task for task in tuple(self.tasks.values()) if name in task.traits.aka), None)

    def served(self) -> frozenset[str]:
        """Return every name under which a job of these tasks may be stored; see `redrive.App.served`."""
        known = tuple(self.tasks)
        if self._served_of != known:
            self._served = frozenset(name for task in tuple(self.tasks.values()) for name in _names(task))
            self._served_of = known
        return self._served

    def check(self) -> None:
        """Check that all tasks exist and fit; see `redrive.App.check`."""
        if self._checked == len(self.tasks) and self._checked:
            return
        for module in self._include:
            _import(module)
        for task in self.tasks.values():
            task.check()
        self._checked = len(self.tasks)

    def check_policy(self, policy: Policy, signature: Signature) -> None:
        """Check that the catch task of a policy exists and fits; see `redrive.App.check_policy`."""
        if policy.catch is None:
            return
        catch = self.find(policy.catch)
        if catch is None:
            known = ", ".join(sorted(self.tasks))
            message = f"task {signature.name!r} is to be caught by {policy.catch!r}, but there is no such task: {known}"
            raise CatchDefinitionError(message)
        check_catch(signature, catch.signature)

    def _check_catches_of(self, added: Task[Any, Any, Any]) -> None:
        """Check the catch tasks that are known and have annotations that can be resolved."""
        for task in self.tasks.values():
            catch = None if task.policy.catch is None else self.find(task.policy.catch)
            if catch is not None and added in (task, catch):
                try:
                    check_catch(task.signature, catch.signature)
                except TaskDefinitionError:
                    continue


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except RedriveError:
        raise
    except Exception as error:
        message = f"include: importing {module!r} failed: {type(error).__name__}: {cleared(str(error))}"
        raise ConfigurationError(message) from error


def _names(task: Task[Any, Any, Any]) -> Iterator[str]:
    """Yield every name under which a job of a task may be stored."""
    yield from task.names
    # The module is None for code that was run by exec().
    module: str | None = task.function.__module__
    if module and catches(task.signature):
        # A policy may name its catch task with a part of its module.
        parts = module.split(".")
        yield from (".".join([*parts[first:], name]) for first in range(len(parts)) for name in task.names)


def _place(task: Task[Any, Any, Any]) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"


def _in_module(task: Task[Any, Any, Any], module: str) -> bool:
    where = task.function.__module__
    return where == module or where.endswith(f".{module}")
