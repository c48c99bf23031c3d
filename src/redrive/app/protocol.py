"""The interface of an App for its parts, and the way in which they run store operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

from redrive.app.payload import Signature
from redrive.clock import Clock
from redrive.engine.frozen import FrozenPolicy
from redrive.policy import Policy
from redrive.stores.query import Operation
from redrive.stores.store import Store

R = TypeVar("R")

Procedure: TypeAlias = Generator[Operation[Any] | Callable[[], object], Any, R]
"""A generator that yields store operations and blocking functions, receives their results, and returns its own.

Each operation is a transaction of its own. A procedure is written once; `run` and `arun` execute it in either colour.
"""


class AppProtocol(Protocol):
    """The App, as tasks, handles and components see it. They import this module, and the App imports them."""

    @property
    def url(self) -> str:
        """The URL of the database."""

    @property
    def reference(self) -> str:
        """The App in commands."""

    @property
    def max_payload(self) -> int:
        """The most bytes of JSON of arguments, a result, an event or a signal."""

    @property
    def store(self) -> Store:
        """The database."""

    @property
    def hooks(self) -> Any:
        """The functions that the app calls around its own ones."""

    @property
    def tasks(self) -> Mapping[str, Any]:
        """The registered tasks by name."""

    @property
    def machines(self) -> Any:
        """The machines and their instances."""

    @property
    def default_actor(self) -> str:
        """The default actor for the audit log."""

    @property
    def clock(self) -> Clock | None:
        """The injected clock; None in production."""

    def now(self) -> datetime | None:
        """Return the present instant of an injected clock."""

    def served(self) -> frozenset[str]:
        """Return every name under which a job of the tasks may be stored."""

    def policies(self) -> Mapping[str, FrozenPolicy]:
        """Return the present policy of each task."""

    def check(self) -> None:
        """Check that every task that another one names exists and fits."""

    def check_policy(self, policy: Policy, signature: Signature) -> None:
        """Check that the tasks that a policy names exist and fit."""

    def find(self, name: str) -> Any:
        """Find a task by its name."""

    def named(self, name: str) -> Any:
        """Return the enqueueing methods of a task by its name."""

    def read_result(self, task: str, raw: bytes | None) -> Any:
        """Read a stored result."""


def run(store: Store, procedure: Procedure[R], **options: Any) -> R:
    """Run the operations of a procedure, under options of `Store.run`, and return its result.

    An error is raised in the procedure, where it has yielded.
    """
    try:
        step = next(procedure)
        while True:
            try:
                found = store.run(step, **options) if isinstance(step, Operation) else step()
            except BaseException as error:  # noqa: BLE001 - raised in the procedure
                step = procedure.throw(error)
            else:
                step = procedure.send(found)
    except StopIteration as end:
        result: R = end.value
        return result


async def arun(store: Store, procedure: Procedure[R], **options: Any) -> R:
    """Run the operations of a procedure without blocking the event loop; see `run`."""
    try:
        step = next(procedure)
        while True:
            try:
                waiting = store.arun(step, **options) if isinstance(step, Operation) else asyncio.to_thread(step)
                found = await waiting
            except BaseException as error:  # noqa: BLE001 - raised in the procedure
                step = procedure.throw(error)
            else:
                step = procedure.send(found)
    except StopIteration as end:
        result: R = end.value
        return result
