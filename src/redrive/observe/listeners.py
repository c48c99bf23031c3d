"""The checks that code makes before it builds an event: is a sink registered, or does the log write this level?"""

from __future__ import annotations

import sys
from collections.abc import Callable

# Code that may emit compares these objects and imports nothing: the rest of the package, and `logging`, are imported
# only when there is an event to emit.
# An entry for each registered sink besides `redrive.observe.log`; empty if there are none.
LISTENERS: list[None] = []

# Not empty while `redrive.observe.log` is registered, as it is from the start.
LOGGED: list[None] = [None]

# Levels of `logging`, which only the functions that log import.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

# For each channel that was asked for, a function that returns True if its logger writes records of a level.
LOGS: dict[str, Callable[[int], bool]] = {}


def heard(channel: str, level: int) -> bool:
    """Return True if a sink is registered, or if the log writes records of this logger and level."""
    # The interpreter sets it to None when it ends, and loads nothing any more.
    if sys.meta_path is None:
        return False
    if LISTENERS:
        return True
    if not LOGGED:
        return False
    is_enabled = LOGS.get(channel)
    if is_enabled is None:
        from redrive.observe.logs import logger

        is_enabled = LOGS[channel] = logger(channel).isEnabledFor
    return is_enabled(level)
