"""Opens a store by its URL and runs operations on it, in either colour."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import parse_duration
from redrive.stores import migrate
from redrive.stores.query import Operation

if TYPE_CHECKING:
    from redrive.stores.drivers.sqlite import Settings, SQLiteDriver

__all__ = ["Store", "open_store"]

R = TypeVar("R")

_FORMS = "sqlite:///relative.db, sqlite:////absolute.db, memory:// (in a path, write # as %23, ? as %3F, % as %25)"
_LONGEST_WAIT = timedelta(days=1)


class Store:
    """A database behind the engine.

    Args:
        url: where it was opened.
        driver: what talks to it.
    """

    def __init__(self, url: str, driver: SQLiteDriver) -> None:
        self.url = url
        self._driver = driver

    def run(self, operation: Operation[R], *, using: Any = None) -> R:  # noqa: ANN401 - a connection of any library
        """Run an operation and wait for it.

        Args:
            operation: what to run.
            using: the user's own connection, whose transaction the operation becomes a part of.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        if using is not None:
            return self._driver.run_on(using, operation)
        return self._driver.submit(operation).result()

    async def arun(self, operation: Operation[R]) -> R:
        """Run an operation and await it.

        Args:
            operation: what to run.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        return await asyncio.wrap_future(self._driver.submit(operation))

    def version(self) -> int:
        """A number that changes when somebody, in this process or another, has committed a change."""
        return self._driver.version()

    def close(self) -> None:
        """Finish what is queued and close the connections. Idempotent."""
        self._driver.close()


def open_store(url: str) -> Store:
    """Open a store and bring it to the present schema.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute), or ``memory://``. SQLite takes
            the settings ``?synchronous=normal`` and ``?busy_timeout=10s``.

    Returns:
        The store.

    Raises:
        ConfigurationError: the URL is not understood.
        StoreOpenError: it cannot be opened, written, or is no database.
        StoreBusy: another process holds it locked.
        SchemaTooNew: a newer redrive has migrated it.
    """
    settings = _settings(url)
    # Imported here, since a driver is loaded only when it is used (law 10).
    from redrive.stores.drivers.sqlite import SQLiteDriver

    driver = SQLiteDriver(settings)
    try:
        driver.script(lambda cursor: migrate.migrate(cursor, driver.dialect, str(settings)))
    except BaseException:
        driver.close()
        raise
    return Store(url, driver)


def _settings(url: str) -> Settings:
    from redrive.stores.drivers.sqlite import Settings

    if url == "memory://":
        return Settings(None)
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or "#" in url or len(parts.path) < 2:  # noqa: PLR2004 - slash and name
        message = f"the store URL {url!r} is not understood; forms: {_FORMS}"
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
        f"the store URL {url!r} has a setting {name}={value!r}; "
        "settings: synchronous=full|normal, busy_timeout=10s (at most 1d)"
    )
    raise ConfigurationError(message)


def _duration(value: str) -> timedelta:
    try:
        return parse_duration(value)
    except PolicyError:
        return timedelta(0)
