"""Prepares what is open for a fork of the process.

A fork copies memory, locks included, and one thread. What other threads were doing at that moment stays half done in
the child for ever: their locks stay locked, and SQLite's own tables say that a connection writes which nobody uses.

So an object that owns locks or connections follows the forks of its process here: it comes to rest before the fork and
starts anew in the child. `os.fork` and everything on top of it, such as `multiprocessing` and gunicorn, call this.
`subprocess` does not need it: its child runs another program.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet

__all__ = ["Mutex", "follow", "hold"]


class Member(Protocol):
    """An object that follows the forks of its process. None of its methods may raise."""

    def before_fork(self) -> None:
        """Come to rest; other threads may wait until `after_fork_in_parent`."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Start anew, without what belongs to the parent."""
        ...


_GATE = threading.Lock()
_MEMBERS: WeakSet[Any] = WeakSet()
_LOCKS: list[threading.Lock] = []
_resting: list[Member] = []


def follow(member: Member) -> None:
    """Let an object follow the forks of this process, as long as it exists.

    Args:
        member: the object.
    """
    with _GATE:
        _MEMBERS.add(member)


class Mutex:
    """A lock that is free in the child of a fork, whichever thread of the parent holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        follow(self)

    def __enter__(self) -> None:
        """Wait for the lock and take it."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self._lock.release()

    def before_fork(self) -> None:
        """Do nothing: it may be held for long."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork_in_child(self) -> None:
        """Be free: the thread that held it does not exist here."""
        self._lock = threading.Lock()


def hold(lock: threading.Lock) -> threading.Lock:
    """Let no fork happen while another thread holds a lock.

    Args:
        lock: one that is held for moments, and under which no other lock is taken.

    Returns:
        The lock.
    """
    _LOCKS.append(lock)
    return lock


def _before() -> None:
    _GATE.acquire()
    _resting[:] = _MEMBERS
    for each in _resting:
        each.before_fork()
    for lock in _LOCKS:
        lock.acquire()


def _after_in_parent() -> None:
    _let_go()
    for each in _resting:
        each.after_fork_in_parent()
    _resting.clear()
    _GATE.release()


def _after_in_child() -> None:
    _let_go()
    for each in _resting:
        each.after_fork_in_child()
    _resting.clear()
    _GATE.release()


def _let_go() -> None:
    for lock in _LOCKS:
        lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
