"""A call of a flow that an ``async def`` body awaits, and the worker's side of a run that carries it out."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from redrive.app.flows.calls import OneCall
from redrive.app.flows.rng import FlowRandom

R = TypeVar("R")


class ConductorProtocol(Protocol):
    """The worker's side of one run, as the body uses it."""

    @property
    def parking(self) -> bool:
        """True while the body is torn down."""

    @property
    def in_step(self) -> bool:
        """True in the function of a step."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """The workflow, the id and the version of the run."""

    def announce(self, call: FlowCall[Any]) -> None:
        """Record that the body has made a call that it must await."""

    def perform(self, asked: OneCall, call: FlowCall[Any] | None = None) -> Coroutine[Any, Any, Any]:
        """Carry out what a coroutine asks for."""

    def perform_in_thread(self, asked: OneCall) -> Any:
        """Carry out what a thread asks for."""

    def set(self, name: str, raw: bytes) -> None:
        """Store a value of the run with its next row."""

    def now(self) -> datetime:
        """Return the time of the last row that the branch has reached."""

    def random(self) -> FlowRandom:
        """Return the random number generator of the branch."""

    def shield(self) -> AbstractContextManager[None]:
        """Return a block in which no cancellation is delivered."""

    def patched(self, name: str, line: str) -> bool:
        """Return True if the run takes a patch."""

    def restart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """End this epoch of the run, and begin the next one with these arguments."""


class FlowCall(Awaitable[R], Generic[R]):
    """A step, a wait or a group of branches that an ``async def`` body has described and not awaited yet.

    Await it, or pass it to ``flow.gather``, ``flow.first``. It can be awaited once.
    """

    __slots__ = ("_conductor", "asked")

    def __init__(self, conductor: ConductorProtocol, asked: OneCall) -> None:
        self._conductor = conductor
        self.asked: OneCall = asked
        conductor.announce(self)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._conductor.perform(self.asked, self).__await__()

    def __repr__(self) -> str:
        return f"<a call of flow, to be awaited, in {self.asked.line}>"
