"""The settings of a PostgreSQL database, and the URLs that give them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import parse_duration
from redrive.stores.urls import redacted, shown

FORM = "postgresql://user@host/database?schema=redrive"

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_DIRECT = re.compile(r"[^:@]+(:\d+)?")
_MOST = 1000

_ESCAPE = "%(?!00)[0-9A-Fa-f]{2}"
_TEXT = rf"(?:[^%/:?#@\[\]&\s\x00-\x1f\x7f]|{_ESCAPE})*"
_NAME = rf"(?:[^%/:?#@\[\]&;=\s\x00-\x1f\x7f]|{_ESCAPE})*"
_HOST = rf"(?:\[[0-9A-Fa-f:.]+\]|{_NAME})(?::\d*)?"
_VALUE = rf"(?:[^%?#@&\s\x00-\x1f\x7f]|{_ESCAPE})*"
_SETTINGS = rf"\?[a-z_]+={_VALUE}(?:&[a-z_]+={_VALUE})*"
_URL = re.compile(
    rf"(?i:postgres(?:ql)?)://(?:{_NAME}(?::{_TEXT})?@)?{_HOST}(?:,{_HOST})*(?:/{_NAME})?(?:{_SETTINGS})?"
)

# Settings that both libraries understand; they get them unchanged.
LIBRARY = frozenset({
    "application_name", "host", "passfile", "port", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert",
    "target_session_attrs", "user", "password",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The settings of a PostgreSQL database."""

    dsn: str = field(repr=False)  # the URL for the libraries, without the settings of redrive
    name: str  # name of the database in messages, without a password
    schema: str = "redrive"  # schema of the tables
    notify: bool = True  # True to wake workers by NOTIFY
    pgbouncer: bool = False  # True if connections go through a pool that gives each transaction another session
    # ``host`` or ``host:port`` (or the folder of a socket) for the listening connection, if the others go through such
    # a pool.
    direct: str | None = None
    pool: int = 10  # maximum number of connections of each library
    # True if a commit must be on the disk of the server before it is acknowledged, even if the server or the role is
    # configured otherwise.
    synchronous_commit: bool = True
    # Time to wait for a connection and the first answer, and for each further answer; half of it for a lock.
    timeout: timedelta = timedelta(seconds=30)

    def __str__(self) -> str:
        """Return the name of the database in messages."""
        return self.name

    @property
    def listens(self) -> bool:
        """Return True if a session can last, to listen and to hold a lock."""
        return not self.pgbouncer or self.direct is not None

    @property
    def channel(self) -> str:
        """Return the channel of this schema's notifications."""
        return f"redrive.{self.schema}"


def parse_url(url: str) -> PostgresSettings:
    """Parse a store URL such as ``postgresql://user@host/database?schema=name``.

    Raise `ConfigurationError` if the URL cannot be parsed, or a setting is unknown or has an invalid value.
    """
    parts = _parts(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = urlencode([pair for pair in pairs if pair[0] in LIBRARY], quote_via=quote)
    where = f"{parts.netloc.rpartition('@')[2] or dict(pairs).get('host', 'the local server')}/{parts.path.lstrip('/')}"
    # Not by urlunsplit: it would leave out the slashes of an empty host.
    dsn = f"postgresql://{parts.netloc}{parts.path or '/'}" + (f"?{kept}" if kept else "")
    found = PostgresSettings(dsn, f"PostgreSQL {where}")
    for name, value in pairs:
        if name not in LIBRARY:
            found = _with_option(found, name, value)
    return replace(found, name=f"{found.name} (schema {found.schema})")


def _parts(url: str) -> SplitResult:
    """Split a URL that all libraries parse alike."""
    # The libraries disagree about other URLs, and their errors contain them.
    with contextlib.suppress(ValueError):
        if _URL.fullmatch(url):
            return urlsplit(url)
    raise ConfigurationError(
        f"the store URL {redacted(url)!r} is not understood; form: {FORM} (in names, passwords and values "
        "write % as %25, / as %2F, : as %3A, ? as %3F, # as %23, @ as %40, [ as %5B, ] as %5D, a blank as %20)"
    )


def _with_option(found: PostgresSettings, name: str, value: str) -> PostgresSettings:
    read = _OPTIONS.get(name)
    known = None if read is None else read(value)
    if known is None:
        raise ConfigurationError(
            f"the store URL of {found} has a setting {shown(name, value)}; settings: schema=name (letters, digits "
            "and _), notify=on|off, pgbouncer=on|off, direct=host:port, pool=10, synchronous_commit=on|off, "
            f"timeout=30s, and of the libraries: {', '.join(sorted(LIBRARY))}"
        )
    return replace(found, **{name: known})


def _switch(value: str) -> bool | None:
    return {"on": True, "off": False}.get(value)


def _count(value: str) -> int | None:
    return int(value) if value.isdecimal() and 0 < int(value) <= _MOST else None


def _span(value: str) -> timedelta | None:
    try:
        span = parse_duration(value)
    except PolicyError:
        return None
    return span if timedelta(0) < span <= timedelta(days=1) else None


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "schema": lambda value: value if _SCHEMA.fullmatch(value) and not value.startswith("pg_") else None,
    "notify": _switch,
    "pgbouncer": _switch,
    "direct": lambda value: value if _DIRECT.fullmatch(value) else None,
    "pool": _count,
    "synchronous_commit": _switch,
    "timeout": _span,
}
