"""The faults of the moment, as far as they concern the way to the database and back."""

from __future__ import annotations

import math
from typing import Any

from redrive.errors import StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.query import Operation
from tests.simulation.scheduler import Process

__all__ = ["Disturbances"]

REPLIES = 0.25
"""The share of replies with a delay of their own."""


class Disturbances:
    """The faults of the moment, as far as they concern the database.

    Args:
        simulation: that they belong to.
    """

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self.away_until = 0.0
        self.behind: dict[str, float] = {}
        """By process, until when it does not find the way to the new server."""
        self.stalls: list[tuple[str, str, float]] = []
        self.delays: list[tuple[str, str, float, float]] = []
        self.replies: dict[str, int] = {}
        self.requests: dict[str, int] = {}
        self.crashes: dict[str, int] = {}
        self.mutes: set[tuple[str, str]] = set()

    def clear(self) -> None:
        """End all faults."""
        self.away_until = 0.0
        self.behind = {}
        self.stalls, self.delays = [], []
        self.replies, self.requests, self.crashes = {}, {}, {}
        self.mutes = set()

    def is_away(self, process: Process) -> bool:
        """Return True if the process does not reach the database now."""
        return max(self.away_until, self.behind.get(process.name, 0.0)) > self._simulation.scheduler.now

    def travel(self, process: Process, timeout: float) -> None:
        """Let a request to the database and its reply travel; raise `StoreUnreachable` if they do not arrive."""
        delay = process.rng.expovariate(500)
        for _ in range(2):
            if self.is_away(process) or delay > timeout:
                message = "the database is away"
                raise StoreUnreachable(message)
            self._simulation.scheduler.sleep(delay)

    def before(self, process: Process, operation: Operation[Any]) -> float:
        """Return the seconds until the request arrives.

        Raises:
            StoreUnreachable: it does not arrive.
        """
        now = self._simulation.scheduler.now
        if self.is_away(process):
            message = "the database is away"
            raise StoreUnreachable(message)
        if operation.writes and self._strikes(self.requests, process):
            message = "the connection was cut before the request was sent"
            raise StoreUnreachable(message)
        if (process.name, operation.name) in self.mutes:
            self.mutes.discard((process.name, operation.name))
            return math.inf
        delay = 0.0 if self._simulation.plan.store == "file" else process.rng.expovariate(500)
        for name, how, until in self.stalls:
            if name in ("", process.name) and how in ("", operation.name) and until > now:
                delay = max(delay, until - now)
        for name, how, seconds, until in self.delays:
            if name == process.name and how == operation.name and until > now:
                delay += seconds
        return delay

    def after(self, process: Process, operation: Operation[Any]) -> float:
        """Return the seconds until the reply arrives.

        Raises:
            StoreOutcomeUnknown: it does not arrive; the writes are committed.
            StoreUnreachable: it does not arrive; the operation writes no row."""
        if self.is_away(process) or (operation.writes and self._strikes(self.replies, process)):
            message = "the connection was cut before the reply came"
            raise (StoreOutcomeUnknown if operation.writes else StoreUnreachable)(message)
        return process.rng.expovariate(500) if process.rng.random() < REPLIES else 0.0

    def _strikes(self, armed: dict[str, int], process: Process) -> bool:
        if armed.get(process.name, 0) <= 0:
            return False
        armed[process.name] -= 1
        return True
