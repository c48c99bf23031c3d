"""Opens a store by its URL and runs operations on it, in either colour."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from redrive.clock import Clock
from redrive.errors import ConfigurationError, PolicyError, StoreOpenError
from redrive.policy import parse_duration
from redrive.stores import migrate
from redrive.stores.loan import AsyncLoan, Loan
from redrive.stores.operations.schema import Schema, mismatch, schema
from redrive.stores.query import Operation
from redrive.stores.urls import redacted, shown

if TYPE_CHECKING:
    from redrive.stores.drivers.sqlite import Settings, SQLiteDriver

__all__ = ["Store", "open_store"]

R = TypeVar("R")

_FORMS = (
    "sqlite:///relative.db, sqlite:////absolute.db, turso:///app.db, postgresql://user@host/database, memory:// "
    "(in a path, write # as %23, ? as %3F, % as %25, @ as %40)"
)
_LONGEST_WAIT = timedelta(days=1)


class Driver(Protocol):
    """What a store needs of the driver that talks to its database; each member is described at `Store`."""

    @property
    def dialect(self) -> str:
        """Whose statements it runs."""
        ...

    @property
    def lasting(self) -> bool:
        """Has a worker a session that lasts as long as its process?"""
        ...

    @property
    def local(self) -> bool:
        """Does the database go by the clock of this machine?"""
        ...

    def run(
        self,
        operation: Operation[R],
        *,
        using: Any = None,  # noqa: ANN401 - a connection of any library
        timeout: float = math.inf,
    ) -> R:
        """Run an operation and wait for it."""
        ...

    async def arun(self, operation: Operation[R], *, using: Any = None) -> R:  # noqa: ANN401 - a connection of any library
        """Run an operation and await it."""
        ...

    def lend(self) -> Loan:
        """Lend a connection, in a transaction."""
        ...

    async def alend(self) -> AsyncLoan:
        """Lend a connection to a coroutine."""
        ...

    async def trim_log(self) -> int:
        """Empty the log of the database if it is large."""
        ...

    def version(self) -> int:
        """A number that changes when there may be a change."""
        ...

    def watch(self, clock: Clock, lock_id: int | None, idle: asyncio.Event | None) -> AsyncGenerator[None, None]:
        """Yield whenever there may be a change that workers wait for."""
        ...

    def close(self) -> None:
        """Finish what is queued and close the connections."""
        ...


class Store:
    """A database behind the engine.

    Args:
        url: where it was opened.
        driver: what talks to it.
    """

    def __init__(self, url: str, driver: Driver) -> None:
        self.url = url
        self._driver = driver

    def run(
        self,
        operation: Operation[R],
        *,
        using: Any = None,  # noqa: ANN401 - a connection of any library
        timeout: float = math.inf,
    ) -> R:
        """Run an operation and wait for it.

        Args:
            operation: what to run.
            using: the user's own connection, whose transaction the operation becomes a part of.
            timeout: seconds after which it is given up where a database server does not answer, if that is sooner than
                the settings of the store say. Databases in files ignore it.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        return self._driver.run(operation, using=using, timeout=timeout)

    async def arun(self, operation: Operation[R], *, using: Any = None) -> R:  # noqa: ANN401 - a connection of any library
        """Run an operation and await it.

        Args:
            operation: what to run.
            using: the user's own connection, whose transaction the operation becomes a part of.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        return await self._driver.arun(operation, using=using)

    def lend(self) -> Loan:
        """Lend a connection of its own to a handler, in a transaction that has begun.

        Returns:
            The loan; who borrows ends it, by its ``commit()`` or its ``rollback()``.

        Raises:
            ConfigurationError: this store has no connection to lend.
            StoreError: the database refused.
        """
        return self._driver.lend()

    async def alend(self) -> AsyncLoan:
        """Lend a connection of its own to a coroutine; see `lend`."""
        return await self._driver.alend()

    async def trim_log(self) -> int:
        """Copy the log of a database file into the database and cut it off, if it is large.

        Returns:
            The bytes of a large log that a transaction still reads from; 0 where the log is small, or none of redrive's
            business.

        Raises:
            StoreError: the database refused.
        """
        return await self._driver.trim_log()

    def version(self) -> int:
        """A number that changes when somebody, in this process or another, has committed a change.

        A database that cannot tell changes it every now and then: then it is time to look.
        """
        return self._driver.version()

    def watch(
        self, clock: Clock, *, lock_id: int | None = None, idle: asyncio.Event | None = None
    ) -> AsyncGenerator[None, None]:
        """Yield at once, and then whenever somebody may have committed a change that workers wait for.

        Args:
            clock: to rest by between two looks.
            lock_id: where `lasting`, the number of a lock to be held meanwhile: by it others see that this process
                lives.
            idle: set while there is somebody who waits for news. Where each look costs something, nobody looks else.

        Returns:
            What to iterate over, until it is closed; it raises `StoreError` where the database is away.
        """
        return self._driver.watch(clock, lock_id, idle)

    @property
    def lasting(self) -> bool:
        """Has a worker a session that lasts as long as its process, so that it can hold a lock?"""
        return self._driver.lasting

    @property
    def local(self) -> bool:
        """Does the database go by the clock of this machine, and not by that of a server?"""
        return self._driver.local

    def schema(self) -> tuple[Schema, int]:
        """The schema that the database has, and the version that this redrive has.

        Raises:
            StoreError: the database has no tables of redrive.
        """
        return self.run(schema()), migrate.latest(self._driver.dialect)

    async def acheck_schema(self) -> int:
        """Check that this redrive can work with the schema that the database has now.

        Returns:
            By how many versions it is newer than the one of this redrive.

        Raises:
            SchemaTooNew: it is too new.
            StoreError: it is too old, or there is none.
        """
        there, latest = await self.arun(schema()), migrate.latest(self._driver.dialect)
        problem = mismatch(there, latest, f"the store {redacted(self.url)}")
        if problem is not None:
            raise problem
        return there.version - latest

    def close(self) -> None:
        """Finish what is queued and close the connections. Idempotent."""
        self._driver.close()


def open_store(url: str, *, migrated: bool = True) -> Store:
    """Open a store and bring it to the present schema.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute), or ``memory://``. SQLite takes
            the settings ``?synchronous=normal`` and ``?busy_timeout=10s``.
        migrated: bring it to the present schema? Without that, only to look at it.

    Returns:
        The store.

    Raises:
        ConfigurationError: the URL is not understood.
        StoreOpenError: it cannot be opened, written, or is no database.
        StoreBusy: another process holds it locked.
        SchemaTooNew: a newer redrive has migrated it.
    """
    if url.lower().startswith(("postgresql:", "postgres:")):
        return Store(url, _postgres(url, migrated=migrated))
    settings = _settings(url)
    if not migrated and settings.path is not None and not settings.path.exists():
        raise StoreOpenError(f"{settings} does not exist; redrive db migrate creates it")
    driver = _driver(url, settings)
    try:
        if migrated:
            driver.script(lambda cursor: migrate.migrate(cursor, driver.dialect, str(settings)))
    except BaseException:
        driver.close()
        raise
    return Store(url, driver)


def _postgres(url: str, *, migrated: bool) -> Driver:
    try:
        from redrive.stores.drivers.postgres import PostgresDriver, settings
    except ImportError as error:
        message = (
            f"a store on PostgreSQL needs packages that are not installed: pip install 'redrive[postgres]' ({error})"
        )
        raise ConfigurationError(message) from error
    driver = PostgresDriver(settings(url))
    if not migrated:
        return driver
    with contextlib.closing(driver.script()) as script:
        migrate.migrate(script, driver.dialect, str(driver.settings), look=script.look, lock=script.lock)
    return driver


def _driver(url: str, settings: Settings) -> SQLiteDriver:
    # Imported here, since a driver is loaded only when it is used (law 10).
    if not url.startswith("turso:"):
        from redrive.stores.drivers.sqlite import SQLiteDriver

        return SQLiteDriver(settings)
    try:
        from redrive.stores.drivers.turso import TursoDriver
    except ImportError as error:
        message = (
            f"the store {redacted(url)!r} needs a package that is not installed: pip install 'redrive[turso]' ({error})"
        )
        raise ConfigurationError(message) from error
    return TursoDriver(settings)


def _settings(url: str) -> Settings:
    from redrive.stores.drivers.sqlite import Settings

    if url == "memory://":
        return Settings(None)
    # urlsplit refuses some texts with errors that show them.
    parts = urlsplit(url if url.lower().startswith(("sqlite:///", "turso:///")) else "")
    # A login is one of a server: nothing of it may become the name of a file or of a setting, which errors show.
    login = re.search(":.*@", url.partition("://")[2], re.DOTALL) is not None
    if parts.netloc or login or "#" in url or len(parts.path) < 2:  # noqa: PLR2004 - slash and name
        message = f"the store URL {redacted(url)!r} is not understood; forms: {_FORMS}"
        raise ConfigurationError(message)
    settings = Settings(Path(unquote(parts.path[1:])).absolute())
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        settings = _with_option(settings, name, value, url)
    return settings


def _with_option(settings: Settings, name: str, value: str, url: str) -> Settings:
    if name == "synchronous" and value.upper() in {"FULL", "NORMAL"}:
        return replace(settings, synchronous=value.upper())
    if name == "busy_timeout" and timedelta(0) < _duration(value) <= _LONGEST_WAIT:
        return replace(settings, busy_timeout=_duration(value))
    message = (
        f"the store URL {redacted(url)!r} has a setting {shown(name, value)}; "
        "settings: synchronous=full|normal, busy_timeout=10s (at most 1d)"
    )
    raise ConfigurationError(message)


def _duration(value: str) -> timedelta:
    try:
        return parse_duration(value)
    except PolicyError:
        return timedelta(0)
