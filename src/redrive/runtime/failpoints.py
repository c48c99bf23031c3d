"""Named points at which a test may kill the worker.

Without the environment variable ``REDRIVE_FAULT`` a point costs one comparison and does nothing. With
``REDRIVE_FAULT=after_claim`` the process sends itself SIGKILL there: no clean-up and no ``finally``, as in a power cut.
"""

from __future__ import annotations

import os
import signal

# Leases are taken and no handler has started; handlers have ended and nothing is written; the ends are written.
POINTS = ("after_claim", "before_settle", "after_settle")

_ARMED = os.environ.get("REDRIVE_FAULT")


def at(point: str) -> None:
    """Kill the process if a test has armed this point, one of `POINTS`."""
    if _ARMED is not None and point == _ARMED:
        os.kill(os.getpid(), signal.SIGKILL)
