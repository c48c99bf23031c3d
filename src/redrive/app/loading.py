"""Code of the user in which nothing may be written, because it is executed again: imports, and bodies of workflows.

Commands, workers and the child processes of ``executor="process"`` import the modules of the user by `import_module`.
Until that returns, and in asyncio tasks that the import has started, operations that write raise `AppLoadError` with
the line. Processes that a module starts inherit it.
The worker refuses them in the bodies of workflows by a `Refusal` of its own.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, ClassVar, Protocol, TypeAlias

from redrive.errors import AppLoadError, StoreOpenError
from redrive.stores.store import Store

Place: TypeAlias = tuple[str, int]
"""A file and the number of a line in it."""

VARIABLE = "REDRIVE_LOADING"
"""The environment variable with the name of the module that a command imports, while it does."""

# The beginnings of files that are not the user's: those of this package, of the import system, of the wrappers of
# retried functions, and of the standard library; installed packages may be below the last one.
_OWN = str(Path(__file__).parents[1]) + os.sep
_STANDARD = ("<frozen", "<redrive.retry", str(Path(os.__file__).parent) + os.sep)


class Refusal(Protocol):
    """Why nothing may be written in a context.

    Attributes:
        is_of_body: True in the body of a run, whose threads are a part of it; False while a module is imported.
    """

    is_of_body: ClassVar[bool]

    def refused(self) -> Exception:
        """Return the error of an operation that writes, with the line of the user."""


class _Import:
    """The import of a module in a process; None is the one that has started this process, if it was another one."""

    is_of_body: ClassVar[bool] = False

    def __init__(self, name: str, process: int | None) -> None:
        self._name = name
        self._process = process

    def refused(self) -> AppLoadError:
        """Return the error of an operation that writes."""
        line = _line_of(callers())
        # A process that was forked has a copy of this object.
        if self._process != os.getpid():
            return AppLoadError(
                f"{line}: this writes to the database of jobs in a process that was started while {self._name!r} was "
                "imported, and each command and worker that imports it would start such a process again: start it, or "
                'the pool that it belongs to, at its first use in a function, or below if __name__ == "__main__":'
            )
        return AppLoadError(
            f"{line}: this writes to the database of jobs while {self._name!r} is imported, and each command and "
            'worker that imports it would write it again: move it into a function, or below if __name__ == "__main__":'
        )


_inherited = os.environ.get(VARIABLE, "")

#: Why nothing may be written here; None where it may. A process that was started by an import has that of the import.
REFUSAL: ContextVar[Refusal | None] = ContextVar(
    "redrive_refusal", default=_Import(_inherited, None) if _inherited else None
)
# The import of a command, which is that of the whole process: a thread that it starts has a context of its own.
_exported: _Import | None = None


def refusal() -> Refusal | None:
    """Return why nothing may be written here; None where it may."""
    found = REFUSAL.get()
    return _exported if found is None else found


def import_module(name: str) -> ModuleType:
    """Import a module of the user.

    Raises:
        AppLoadError: the module ends the process.
    """
    with loading(name):
        try:
            return importlib.import_module(name)
        except SystemExit as error:
            places = ((each.f_code.co_filename, line) for each, line in traceback.walk_tb(error.__traceback__))
            raise AppLoadError(
                f"{_line_of(reversed([*places]))}: importing {name!r} ends the process by SystemExit({error.code!r}): "
                'move this into a function, or below if __name__ == "__main__":'
            ) from error


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Refuse operations that write, in this thread, as during the import of a module."""
    token = REFUSAL.set(_Import(name, os.getpid()))
    try:
        yield
    finally:
        REFUSAL.reset(token)


@contextmanager
def naming(reference: str) -> Iterator[None]:
    """Name the App in the commands of errors about its database: a store does not have the reference of its App."""
    try:
        yield
    except StoreOpenError as error:
        command = "redrive db migrate"
        raise StoreOpenError(str(error).replace(f"{command} APP", f"{command} {shlex.quote(reference)}")) from error


@contextmanager
def exported(name: str) -> Iterator[None]:
    """Set `VARIABLE`, which processes that the import starts inherit, and refuse in all threads of this process."""
    global _exported  # noqa: PLW0603 - the state of the process, as its environment is
    before, outer = os.environ.get(VARIABLE), _exported
    os.environ[VARIABLE], _exported = name, _Import(name, os.getpid())
    try:
        yield
    finally:
        _exported = outer
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


class ReadingStore:
    """A store where nothing may be written: such operations are refused. It may live longer, and passes all on then."""

    def __init__(self, opened: Callable[[], Store]) -> None:
        self._opened = opened

    def run(self, operation: Any, **options: Any) -> Any:
        """Run an operation; see `redrive.stores.store.Store.run`."""
        _check(writes=operation.writes)
        return self._opened().run(operation, **options)

    async def arun(self, operation: Any, **options: Any) -> Any:
        """Run an operation; see `redrive.stores.store.Store.arun`."""
        _check(writes=operation.writes)
        return await self._opened().arun(operation, **options)

    def begin(self, asked: Any = None) -> Any:
        """Begin a transaction; see `redrive.stores.store.Store.begin`."""
        _check(writes=True)
        return self._opened().begin(asked)

    async def abegin(self, asked: Any = None) -> Any:
        """Begin a transaction; see `redrive.stores.store.Store.abegin`."""
        _check(writes=True)
        return await self._opened().abegin(asked)

    def __getattr__(self, name: str) -> Any:
        """Return another member of the store."""
        return getattr(self._opened(), name)


def _check(*, writes: bool) -> None:
    found = refusal() if writes else None
    if found is not None:
        raise found.refused()


def callers(frame: FrameType | None = None) -> Iterator[Place]:
    """Yield the file and the line of each function that is running, the last one first; in this thread by default."""
    frame = frame or sys._getframe(1)  # as `warnings` finds the line of a caller
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def of_user(places: Iterable[Place]) -> Place | None:
    """Return the first of these places that is in the code of the user; None if none is."""
    return next((place for place in places if _is_of_user(place[0])), None)


def _is_of_user(file: str) -> bool:
    return not file.startswith(_OWN) and (not file.startswith(_STANDARD) or "-packages" in file)


def _line_of(places: Iterable[Place]) -> str:
    found = of_user(places)
    return "its module" if found is None else f"{found[0]}, line {found[1]}"
