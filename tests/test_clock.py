"""The clock of this machine."""

from __future__ import annotations

import sys
from types import ModuleType

from redrive.clock import in_trio


def test_a_partly_imported_trio_is_not_running(monkeypatch):
    """While a thread imports trio, its module is there and empty, and `in_trio` returns False."""
    monkeypatch.setitem(sys.modules, "trio", ModuleType("trio"))

    assert not in_trio()
