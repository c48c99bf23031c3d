"""The databases that are kept, one of each released version and the present one: their files, and how they are loaded.

Each folder here that is called like a version has a dump for each dialect, and `Kept` as JSON.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from tests import postgres

FOLDER = Path(__file__).parent

ROOT = FOLDER.parents[1]

KINDS = ("sqlite", "postgres")

SCHEMA = "upgrade_fixture"
"""The name of the schema in dumps of PostgreSQL; a database that is loaded has another one."""

HOME = "/srv/app"
"""The folder of the program, in tracebacks that are kept."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a kept database.

    Attributes:
        version: of the redrive that made it.
        tag: of the commit that was released as this version; None before that.
        at: the instant at which its clock stands, in ISO 8601.
        before: what it contains, as `fill.found` returns it.
        after: what it must contain in the end, as far as that differs.
        effects: those that take place after the upgrade, each once.
        unaided: those of them that a worker has at any later time, without operators and other programs.
    """

    version: str
    tag: str | None
    at: str
    before: dict[str, Any]
    after: dict[str, Any]
    effects: list[str]
    unaided: list[str]


def versions() -> list[str]:
    """Return the versions of which a database is kept, oldest first."""
    found = [each.parent.name for each in FOLDER.glob("*/kept.json")]
    return sorted(found, key=Version)


def read(version: str) -> Kept:
    """Return what is known of the database of a version."""
    return msgspec.json.decode((FOLDER / version / "kept.json").read_bytes(), type=Kept)


def tag_of(version: str) -> str | None:
    """Return the tag of a version; None if it was not released, or has no kept database."""
    path = FOLDER / version / "kept.json"
    return msgspec.json.decode(path.read_bytes())["tag"] if path.exists() else None


def write(kept: Kept, scripts: dict[str, str]) -> None:
    """Write the files of a version."""
    folder = FOLDER / kept.version
    folder.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(kept), indent=1)
    (folder / "kept.json").write_bytes(text + b"\n")
    for kind, script in scripts.items():
        (folder / f"{kind}.sql.gz").write_bytes(gzip.compress(script.encode(), mtime=0))


# ------------------------------------------------------------------------------------------------------------- dumping


def dump(kind: str, place: str) -> str:
    """Return the script that makes a database: of a file, or of the schema of this name."""
    script = _dump_sqlite(place) if kind == "sqlite" else _dump_postgres()
    for here, there in (
        (str(ROOT), HOME),
        (_hex(str(ROOT)), _hex(HOME)),
        (_hex(str(ROOT)).upper(), _hex(HOME).upper()),
    ):
        script = script.replace(here, there)
    return script


def _hex(text: str) -> str:
    return text.encode().hex()


def _dump_sqlite(path: str) -> str:
    connection = sqlite3.connect(path)
    lines = list(connection.iterdump())
    connection.close()
    return "\n".join(lines) + "\n"


def _dump_postgres() -> str:
    options = ["--no-owner", "--no-privileges", "--no-comments", "--inserts", f"--schema={SCHEMA}"]
    command = [postgres.tool("pg_dump"), f"--host={postgres.server()}", "--username=postgres", *options, "postgres"]
    script = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Settings differ between versions, and so do the commands of psql. Comments name the version.
    _, create, rest = script.partition("CREATE SCHEMA")
    return re.sub(r"^(--( .*)?|SET default_\w+ = .*|\\unrestrict .*)\n", "", create + rest, flags=re.MULTILINE)


# ------------------------------------------------------------------------------------------------------------- loading


def load(version: str, kind: str, folder: Path, *, number: int = 1) -> str:
    """Load the database of a version into a file of a folder, or a schema of a server, and return its URL."""
    script = gzip.decompress((FOLDER / version / f"{kind}.sql.gz").read_bytes()).decode()
    if kind == "sqlite":
        path = folder / "kept.db"
        connection = sqlite3.connect(path)
        connection.executescript(script)
        connection.close()
        return f"sqlite:///{path}?synchronous=normal"
    schema = postgres.fresh()
    with postgres.connect(number=number) as connection:
        connection.execute("SET check_function_bodies = false; SET search_path = ''")
        connection.execute(script.replace(SCHEMA, schema))
    return postgres.url(schema, number=number)
