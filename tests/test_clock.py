"""The clock of this machine."""

from __future__ import annotations

import sys
from types import ModuleType

from redrive.clock import in_trio


def test_nobody_runs_under_a_trio_that_is_still_being_imported(monkeypatch):
    """A handler's thread imports trio, perhaps by way of httpx, while the loop asks: the module is there, and empty."""
    monkeypatch.setitem(sys.modules, "trio", ModuleType("trio"))

    assert not in_trio()
