"""Failures on purpose: points at which a test may kill the worker, and attempts that `redrive dev` lets fail.

Without the environment variable ``REDRIVE_FAULT`` a point costs one comparison and does nothing. With
``REDRIVE_FAULT=after_claim`` the process sends itself SIGKILL there: no clean-up and no ``finally``, as in a power cut.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

# Leases are taken and no handler has started; handlers have ended and nothing is written; the ends are written.
POINTS = ("after_claim", "before_settle", "after_settle")

_ARMED = os.environ.get("REDRIVE_FAULT")


def at(point: str) -> None:
    """Kill the process if a test has armed this point, one of `POINTS`."""
    if _ARMED is not None and point == _ARMED:
        os.kill(os.getpid(), signal.SIGKILL)


#: The errors of the next attempts, by task or step: what makes each, and how many are left.
PLANNED: dict[str, tuple[Callable[[], Exception], int]] = {}


def plan(name: str, error: Callable[[], Exception], attempts: int) -> None:
    """Let the next attempts of a task or step fail without a call of its function; 0 attempts remove the plan."""
    if attempts:
        PLANNED[name] = error, attempts
    else:
        PLANNED.pop(name, None)


def fail(name: str) -> None:
    """Raise the error that is planned for an attempt of a task or step, if there is one."""
    error, attempts = PLANNED.get(name, (None, 0))
    if error is not None:
        plan(name, error, attempts - 1)
        raise error()
