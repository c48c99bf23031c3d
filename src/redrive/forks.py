"""Fork handlers for objects that own locks or connections."""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from typing import Any
from weakref import WeakSet


class Member(ABC):
    """An object with fork handlers. None of its methods may raise."""

    def before_fork(self) -> None:  # noqa: B027 - most members have nothing to do
        """Pause; other threads may wait until `after_fork_in_parent`."""

    def after_fork_in_parent(self) -> None:  # noqa: B027
        """Resume."""

    @abstractmethod
    def after_fork_in_child(self) -> None:
        """Start anew, without the connections and locks of the parent."""


# A fork copies memory, locks included, and only the thread that forks. Locks of other threads stay locked in the child,
# and SQLite's own tables record a writing connection that no thread uses. So an object that owns locks or connections
# registers here: it pauses before the fork, resumes in the parent and starts anew in the child.
_GATE = threading.Lock()
_MEMBERS: WeakSet[Any] = WeakSet()
_LOCKS: list[threading.Lock] = []
_paused: list[Member] = []


def register(member: Member) -> None:
    """Call the fork handlers of an object at each fork, as long as the object exists."""
    with _GATE:
        _MEMBERS.add(member)


class ForkSafeLock(Member):
    """A lock that is free in the child of a fork, whichever thread of the parent holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        register(self)

    def __enter__(self) -> None:
        """Wait for the lock and take it."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Replace the lock: the thread that held it does not exist in the child."""
        self._lock = threading.Lock()


def hold(lock: threading.Lock) -> threading.Lock:
    """Register a lock that the fork takes first, so that no other thread holds it in the child."""
    # It must be held for microseconds only, and no other lock may be taken under it.
    _LOCKS.append(lock)
    return lock


def _before() -> None:
    # It may load a module with members, which register; its own handler may run behind this one.
    calls = sys.modules.get("redrive.retrying.context")
    if calls is not None:
        calls.finish_imports()
    _GATE.acquire()
    _paused[:] = _MEMBERS
    for member in _paused:
        member.before_fork()
    for lock in _LOCKS:
        lock.acquire()


def _after_in_parent() -> None:
    for lock in _LOCKS:
        lock.release()
    for member in _paused:
        member.after_fork_in_parent()
    _paused.clear()
    _GATE.release()


def _after_in_child() -> None:
    for lock in _LOCKS:
        lock.release()
    for member in _paused:
        member.after_fork_in_child()
    _paused.clear()
    _GATE.release()


# `os.fork` and its users, such as `multiprocessing` and gunicorn, call the handlers. `subprocess` does not need them:
# its child runs another program.
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
