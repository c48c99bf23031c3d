"""An app with time that jumps, on one store or on each, and a record of the calls of steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.engine.runs import StepKind
from redrive.engine.steps import StepEnd
from redrive.errors import StoreError
from redrive.runtime.runs.recorder import StoreRecorder
from redrive.testing import VirtualClock
from tests import postgres

every_store = pytest.mark.parametrize("app", ["memory", "sqlite", "turso", "postgres"], indirect=True)
"""Runs a test on each store."""


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """Yield an app with a virtual clock, in memory unless the test asks for another store."""
    kind = getattr(request, "param", "memory")
    files = {
        "memory": "memory://",
        **{each: f"{each}:///{tmp_path}/runs.db?synchronous=normal" for each in ("sqlite", "turso")},
    }
    with postgres.lent() if kind == "postgres" else contextlib.nullcontext(files[kind]) as url:
        app = App(url, clock=VirtualClock())
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


Refusing = Callable[[StepKind], list[StepEnd]]
"""Has the store refuse the first write with a row of a kind; returns a list of what it has refused."""


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    """Let the store refuse one write."""

    def refuse(kind: StepKind) -> list[StepEnd]:
        write, refused = StoreRecorder.record, list[StepEnd]()

        async def record(recorder: StoreRecorder, ends: Sequence[StepEnd], values: bytes | None) -> Any:
            if not refused and any(each.kind is kind for each in ends):
                refused.extend(ends)
                raise StoreError("refused")
            return await write(recorder, ends, values)

        monkeypatch.setattr(StoreRecorder, "record", record)
        return refused

    return refuse
