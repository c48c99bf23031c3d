"""Opening a store by its URL."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, StoreOpenError
from redrive.stores import migrate
from redrive.stores.store import Store
from redrive.stores.urls import redacted

if TYPE_CHECKING:
    from redrive.stores.drivers.sqlite import SQLiteStore

# Drivers are imported in the functions: a program loads only the libraries of the store that it uses.


def open_store(url: str, *, migrated: bool = True) -> Store:
    """Open a store and migrate it to the present schema.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute), ``turso:///app.db``,
            ``postgresql://user@host/database`` or ``memory://``, with settings such as ``?synchronous=normal``.
        migrated: False opens an existing store without creating or migrating it; ``memory://`` is always new.

    Raises:
        ConfigurationError: the URL is not understood, or a package is not installed.
        StoreOpenError: it cannot be opened or written, or is not a database.
        StoreBusy: another process holds its lock.
        SchemaTooNew: a newer redrive has migrated it.
    """
    if url.lower().startswith(("postgresql:", "postgres:")):
        return _open_postgres(url, migrated=migrated)
    return _open_file(url, migrated=migrated)


def _open_postgres(url: str, *, migrated: bool) -> Store:
    try:
        from redrive.stores.drivers.postgres import PostgresStore, parse_url
    except ImportError as error:
        raise ConfigurationError(
            f'a store on PostgreSQL needs packages that are not installed: pip install "redrive[postgres]" ({error})'
        ) from error
    store = PostgresStore(url, parse_url(url))
    if migrated:
        with contextlib.closing(store.migration_cursor()) as cursor:
            migrate.migrate(cursor, store.dialect, str(store.settings), look=cursor.look, lock=cursor.lock)
    return store


def _open_file(url: str, *, migrated: bool) -> Store:
    from redrive.stores.drivers.sqlite import SQLiteStore, parse_url

    settings = parse_url(url)
    path = settings.path
    if not migrated and path is not None and path.parent.exists() and not path.exists():
        raise StoreOpenError(f"{settings} does not exist; redrive db migrate creates it")
    store = (_turso_class(url) if url.startswith("turso:") else SQLiteStore)(url, settings)
    try:
        if migrated or path is None:
            store.script(lambda cursor: migrate.migrate(cursor, store.dialect, str(settings)))
    except BaseException:
        store.close()
        raise
    return store


def _turso_class(url: str) -> type[SQLiteStore]:
    try:
        from redrive.stores.drivers.turso import TursoStore
    except ImportError as error:
        raise ConfigurationError(
            f'the store {redacted(url)!r} needs a package that is not installed: pip install "redrive[turso]" ({error})'
        ) from error
    return TursoStore
