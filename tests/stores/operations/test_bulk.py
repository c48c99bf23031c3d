"""Bulk operations, step by step: what another process did in between."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.bulk import BulkState
from redrive.errors import IllegalMove
from redrive.stores.operations import bulk
from tests.engine.helpers import NOW, OPERATION
from tests.stores.operations.conversing import CLOCK, converse


def test_of_two_undos_at_once_one_is_refused():
    """Undos that another process has started since the read are not started a second time."""
    ended = replace(OPERATION, state=BulkState.DONE, done=1, ended_at=NOW)

    with pytest.raises(IllegalMove, match="operation 7 cannot be undone: another operation takes it back already"):
        converse(bulk.undo(7), CLOCK, [ended], [])
