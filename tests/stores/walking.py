"""Random walks through a store: a state machine of Hypothesis with a store of its own, on each kind of store."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine

from tests.selection import sized
from tests.stores.helpers import harness


class Walk(RuleBasedStateMachine):
    """A state machine with a store."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.opened = contextlib.ExitStack()
        folder = Path(self.opened.enter_context(tempfile.TemporaryDirectory()))
        self.store = self.opened.enter_context(harness(self.kind, "sync", folder))

    def teardown(self) -> None:
        """Close the store."""
        self.opened.close()


def walks(machine: type[Walk], kind: str, count: int, *, steps: int = 30) -> Any:
    """Return the test of a machine on a kind of store: the same walks each time, or deeper ones on request.

    `make test` makes a quarter of the walks on databases, whose code the conformance tests run too."""
    if kind != "memory":
        count = sized(-(-count // 4), count)
    test = type(f"{machine.__name__}On{kind.title()}", (machine,), {"kind": kind}).TestCase
    test.settings = (
        settings(suppress_health_check=[HealthCheck.too_slow])
        if settings.get_current_profile_name() == "deep"
        else settings(
            max_examples=count,
            stateful_step_count=steps,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    )
    return test
