"""An app in memory with time that jumps, and a record of the calls of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from redrive import App
from redrive.testing import VirtualClock


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


async def turn() -> None:
    """Let other tasks run."""
    await asyncio.sleep(0)  # noqa: TID251 - not a sleep


class Calls(list[str]):
    """The calls of steps, in their order."""

    def step(self, name: str, *errors: Exception) -> Callable[[int], int]:
        """Return a step that returns its argument; its first calls raise these errors."""
        left = list(errors)

        def step(number: int = 0) -> int:
            self.append(name)
            if left:
                raise left.pop(0)
            return number

        step.__name__ = name
        return step


@pytest.fixture
def calls() -> Calls:
    """Return an empty record."""
    return Calls()
