"""Opening a store by its URL."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError, StoreError, StoreOpenError, StoreUnreachable
from redrive.stores import migrate
from redrive.stores.migrate import Cursor, Phase
from redrive.stores.store import Store
from redrive.stores.urls import redacted

if TYPE_CHECKING:
    from redrive.stores.drivers.sqlite import SQLiteStore

# Drivers are imported in the functions: a program loads only the libraries of the store that it uses.


def open_store(url: str, *, migrated: bool = True, phase: Phase | None = Phase.PRE) -> Store:
    """Open a store and migrate it to the schema that this redrive needs.

    Args:
        url: ``sqlite:///app.db`` (relative), ``sqlite:////var/lib/app.db`` (absolute), ``turso:///app.db``,
            ``postgresql://user@host/database`` or ``memory://``, with settings such as ``?synchronous=normal``.
        migrated: False opens an existing store without creating or migrating it; ``memory://`` is always new.
        phase: the migrations that run; None for all. Those of the phase ``post`` would end the work of older workers,
            which a program must not do by opening its store.

    Raises:
        ConfigurationError: the URL is not understood, or a package is not installed.
        StoreOpenError: it cannot be opened or written, or is not a database.
        StoreBusy: another process holds its lock.
        SchemaTooNew: a newer redrive has migrated it.
    """
    opening = _open_postgres if _is_on_a_server(url) else _open_file
    return opening(url, migrated=migrated, phase=phase)


async def aopen_store(url: str) -> Store:
    """Open a store as `open_store` does; a database server that needs no migration does not block the event loop."""
    if _is_on_a_server(url):
        store = _open_postgres(url, migrated=False, phase=None)
        try:
            await store.acheck_schema()
        except BaseException as error:
            store.close()
            # open_store() migrates, or raises the error with what to do. It would wait again for a server that is away.
            if not isinstance(error, StoreError) or isinstance(error, StoreUnreachable):
                raise
        else:
            return store
    return open_store(url)


def _is_on_a_server(url: str) -> bool:
    return url.lower().startswith(("postgresql:", "postgres:"))


def _open_postgres(url: str, *, migrated: bool, phase: Phase | None) -> Store:
    missing = [name for name in ("asyncpg", "psycopg") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            'a store on PostgreSQL needs packages that are not installed: pip install "redrive[postgres]" '
            f"(missing: {', '.join(missing)})"
        )
    from redrive.stores.drivers.postgres import PostgresStore, parse_url

    store = PostgresStore(url, parse_url(url))
    if migrated:
        with contextlib.closing(store.migration_cursor()) as cursor:
            migrate.migrate(cursor, store.dialect, str(store.settings), phase=phase, look=cursor.look, lock=cursor.lock)
    return store


def _open_file(url: str, *, migrated: bool, phase: Phase | None) -> Store:
    from redrive.stores.drivers.sqlite import SQLiteStore, fill, parse_url

    settings = parse_url(url)
    path = settings.path
    if not migrated and path is not None and path.parent.exists() and not path.exists():
        raise StoreOpenError(f"{settings} does not exist; redrive db migrate APP creates it")
    store = (_turso_class(url) if url.startswith("turso:") else SQLiteStore)(url, settings)
    try:
        if path is None:
            store.script(lambda cursor: fill(cursor, _create))
        elif migrated:
            store.script(lambda cursor: migrate.migrate(cursor, store.dialect, str(settings), phase=phase))
    except BaseException:
        store.close()
        raise
    return store


def _create(cursor: Cursor) -> None:
    migrate.migrate(cursor, "sqlite", "memory://", phase=None)


def _turso_class(url: str) -> type[SQLiteStore]:
    try:
        from redrive.stores.drivers.turso import TursoStore
    except ImportError as error:
        raise ConfigurationError(
            f'the store {redacted(url)!r} needs a package that is not installed: pip install "redrive[turso]" ({error})'
        ) from error
    return TursoStore
