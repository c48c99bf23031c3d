"""Handlers that run in child processes. Each asks the process of its scenario, which started the child, for its work.

A scenario is a closure, which a child cannot import. So the functions here send their calls to a socket whose name
follows from the process of the scenario, and each returns or raises what the function of the scenario does there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)
"""Set by each handler; no other one may see a value."""

Work = Callable[[str, int, str | None], int]
"""Does the work of a handler, by its name, its number, and the context of another job that it has seen."""


def work(n: int) -> int:
    """Do the work of the job under test."""
    return _asked("work", n)


def neighbour(n: int) -> int:
    """Do the work of a neighbour."""
    return _asked("neighbour", n)


def _asked(name: str, n: int) -> int:
    seen = TENANT.get()
    TENANT.set(f"tenant {n}")
    with Client(_address(os.getppid())) as parent:
        parent.send((name, n, seen))
        answer: int | Exception = parent.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _address(parent: int) -> str:
    return str(Path(tempfile.gettempdir(), f"redrive-crossings-{parent}"))


@contextlib.contextmanager
def answering(work: Work) -> Iterator[None]:
    """Do the work of handlers in child processes of this process, each in a thread."""
    ends = threading.Event()
    with Listener(_address(os.getpid())) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, work, ends))
        accepting.start()
        try:
            yield
        finally:
            ends.set()
            # A call wakes the thread.
            Client(_address(os.getpid())).close()
            accepting.join()


def _accept(listener: Listener, work: Work, ends: threading.Event) -> None:
    while True:
        connection = listener.accept()
        if ends.is_set():
            connection.close()
            return
        threading.Thread(target=_answer, args=(connection, work)).start()


def _answer(connection: Connection, work: Work) -> None:
    # A child can be killed before it has sent its call, and before it has the answer.
    with connection, contextlib.suppress(EOFError, OSError):
        name, n, seen = connection.recv()
        try:
            answer: int | Exception = work(name, n, seen)
        except Exception as error:  # noqa: BLE001 - it is raised in the child
            answer = error
        connection.send(answer)
