"""Make the database that is kept for the present version anew: ``make fixture``.

Random numbers have a seed. The same code makes the same files, but for the microseconds that attempts took, and the
order in which a worker ends two of them at one instant.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import tempfile

import redrive
from redrive.engine.records import Process
from redrive.runtime import registration
from redrive.testing import VirtualClock, using_app
from tests import postgres
from tests.upgrades import fill, kept, work
from tests.upgrades.kept import Kept

UID = "UPDATE redrive_meta SET value = '0123456789abcdef' WHERE key = 'uid'"


def main() -> None:
    """Write the files, unless the version was released."""
    version = redrive.__version__
    tag = kept.tag_of(version)
    if tag is not None:
        raise SystemExit(f"{version} was released as {tag}: its database stays as it is. Raise the version first.")
    logging.getLogger("redrive").setLevel(logging.CRITICAL)
    registration.present = lambda: Process("host-1", 1, None)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/kept.db"
        scripts, found = {}, {}
        for kind, url in (("sqlite", f"sqlite:///{path}"), ("postgres", postgres.url(kept.SCHEMA))):
            found[kind] = _filled(url)
            _name(kind, path)
            scripts[kind] = kept.dump(kind, path)
    if found["sqlite"] != found["postgres"]:
        raise SystemExit(f"the stores differ: {found}")
    expected = fill.after(), fill.effects(), fill.unaided()
    kept.write(Kept(version, None, fill.END.isoformat(), found["sqlite"], *expected), scripts)


def _filled(url: str) -> dict[str, object]:
    random.seed(1)
    work.LEDGER.clear()
    work.BREAKER.circuit.reset()
    clock = VirtualClock(fill.BEGIN)
    with using_app(work.app, url=url, clock=clock):
        fill.fill(clock)
        return fill.found()


def _name(kind: str, path: str) -> None:
    """Give the database its fixed identity."""
    if kind == "sqlite":
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(UID)
        connection.close()
    else:
        with postgres.connect() as connection:
            connection.execute(f"SET search_path TO {kept.SCHEMA}")
            connection.execute(UID)


if __name__ == "__main__":
    main()
