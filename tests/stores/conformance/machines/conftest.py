"""The payments of the store under test."""

from __future__ import annotations

import pytest

from tests.stores.helpers import Harness
from tests.stores.machines import Automaton


@pytest.fixture
def payments(store: Harness) -> Automaton:
    """Return the payments of an empty store."""
    return Automaton(store)
