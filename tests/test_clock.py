"""The clock of this machine."""

from __future__ import annotations

import sys
from types import ModuleType

from redrive.clock import in_trio


def test_nobody_runs_under_a_trio_that_is_still_being_imported(monkeypatch):
    """While a thread imports trio, its module is there and empty, and `in_trio` returns False."""
    monkeypatch.setitem(sys.modules, "trio", ModuleType("trio"))

    assert not in_trio()
