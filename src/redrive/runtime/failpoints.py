"""Named points at which a test may kill the worker.

A crash between two steps is where durable systems lose or repeat work, so the steps have names, in production code
(the habit of DBOS). Without the environment variable ``REDRIVE_FAULT`` a point costs one comparison and does nothing.
With ``REDRIVE_FAULT=after_claim`` the process sends itself SIGKILL there: no clean-up, no ``finally``, as in a power
cut.
"""

from __future__ import annotations

import os
import signal

__all__ = ["POINTS", "at"]

POINTS = ("after_claim", "before_settle", "after_settle")
"""Leases are taken and no handler has started; handlers have ended and nothing is written; it is written."""

_ARMED = os.environ.get("REDRIVE_FAULT")


def at(point: str) -> None:
    """Pass a point; die there if a test has armed it.

    Args:
        point: one of `POINTS`.
    """
    if _ARMED is not None and point == _ARMED:
        os.kill(os.getpid(), signal.SIGKILL)
