"""The settings of a PostgreSQL database, and the URLs that give them."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import parse_duration
from redrive.stores.drivers.postgres.servers import WANTED, Address, C, Search, Servers, addresses, search
from redrive.stores.urls import HIDDEN, redacted, shown

FORM = "postgresql://user@host/database?schema=redrive"

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_MOST = 1000

_ESCAPE = "%(?!00)[0-9A-Fa-f]{2}"
_TEXT = rf"(?:[^%/:?#@\[\]&\s\x00-\x1f\x7f]|{_ESCAPE})*"
_NAME = rf"(?:[^%/:?#@\[\]&;=\s\x00-\x1f\x7f]|{_ESCAPE})*"
_HOST = rf"(?:\[[0-9A-Fa-f:.]+\]|{_NAME})(?::\d*)?"
_VALUE = rf"(?:[^%?#@&\s\x00-\x1f\x7f]|{_ESCAPE})*"
_SETTINGS = rf"[a-z_]+={_VALUE}(?:&[a-z_]+={_VALUE})*"
_URL = re.compile(
    rf"(?i:postgres(?:ql)?)://(?P<login>{_NAME}(?::{_TEXT})?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)"
    rf"(?P<path>/{_NAME})?(?:\?(?P<query>{_SETTINGS}))?"
)

# Settings that both libraries understand; they get them unchanged.
LIBRARY = frozenset({
    "application_name", "passfile", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "user", "password",
})  # fmt: skip

# Settings of the libraries that redrive reads for them: it gives them one server after the other; see `servers`.
SERVERS = frozenset({"host", "port", "target_session_attrs"})

# libpq raises a shorter connect_timeout to this.
SHORTEST = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The settings of a PostgreSQL database."""

    dsn: str = field(repr=False)  # the URL for the libraries, without the settings of redrive
    name: str  # name of the database in messages, without a password
    schema: str = "redrive"  # schema of the tables
    notify: bool = True  # True to wake workers by NOTIFY
    pgbouncer: bool = False  # True if connections go through a pool that gives each transaction another session
    servers: Servers = field(default_factory=Servers)
    # The servers of the listening connection, if the others go through such a pool.
    direct: Servers | None = None
    pool: int = 10  # maximum number of connections of each library
    # True if a commit must be on the disk of the server before it is acknowledged, even if the server or the role is
    # configured otherwise.
    synchronous_commit: bool = True
    # Time to wait for a connection and the first answer, and for each further answer; half of it for a lock.
    timeout: timedelta = timedelta(seconds=30)
    # Time to wait for each of several servers before the next one is tried; None: `SHORTEST`, and ``timeout`` for the
    # only one.
    connect_timeout: timedelta | None = None

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

    def patience(self, servers: Servers) -> float:
        """Return the seconds without an answer after which a session asks whether its server is there.

        Never where there is no other server: then the session may as well wait for its timeout.
        """
        return self._limit(servers) if len(servers.order) > 1 else math.inf

    def _limit(self, servers: Servers) -> float:
        default = self.timeout if len(servers.order) == 1 else SHORTEST
        return (self.connect_timeout or default).total_seconds()

    def search(self, servers: Servers, *, now: float, until: float, close: Callable[[C], None]) -> Search[C]:
        """Return the search for a server within the timeout, and by ``until`` if that is earlier; see `search`."""
        return search(
            servers,
            limit=self._limit(servers),
            now=now,
            until=min(until, now + self.timeout.total_seconds()),
            close=close,
        )


def parse_url(url: str) -> PostgresSettings:
    """Parse a store URL such as ``postgresql://user@host/database?schema=name``.

    Raise `ConfigurationError` if the URL cannot be parsed, or a setting is unknown or has an invalid value.
    """
    login, hosts, path, query = _parts(url)
    pairs = parse_qsl(query, keep_blank_values=True)
    given = {name: value for name, value in pairs if name in SERVERS and value}
    where = hosts or given.get("host") or os.environ.get("PGHOST") or "the local server"
    place = HIDDEN if "@" in where else where
    found = PostgresSettings(_dsn(login, path, pairs), f"PostgreSQL {place}/{path.lstrip('/')}")
    found = replace(found, servers=Servers(_addresses(found, hosts, given), _wanted(found, given)))
    for name, value in pairs:
        if name not in LIBRARY | SERVERS:
            found = _with_option(found, name, value)
    if found.direct is not None:
        found.direct.wanted = found.servers.wanted
    return replace(found, name=f"{found.name} (schema {found.schema})")


def _parts(url: str) -> tuple[str, str, str, str]:
    """Split a URL that all libraries parse alike into the login, the hosts, the path and the query."""
    # The libraries disagree about other URLs, and their errors contain them.
    found = _URL.fullmatch(url)
    with contextlib.suppress(ValueError):
        if found is not None:
            urlsplit(_dsn(found["login"] or "", found["path"] or "", []))
            return found["login"] or "", found["hosts"], found["path"] or "", found["query"] or ""
    raise ConfigurationError(
        f"the store URL {redacted(url)!r} is not understood; form: {FORM} (in names, passwords and values "
        "write % as %25, / as %2F, : as %3A, ? as %3F, # as %23, @ as %40, [ as %5B, ] as %5D, a blank as %20)"
    )


def _dsn(login: str, path: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return the URL for the libraries: without the servers, of which they get one at a time."""
    kept = urlencode([pair for pair in pairs if pair[0] in LIBRARY], quote_via=quote)
    return f"postgresql://{login}{path or '/'}" + (f"?{kept}" if kept else "")


def _addresses(found: PostgresSettings, hosts: str, given: Mapping[str, str]) -> tuple[Address, ...]:
    """Return the servers of the address, of the settings ``host`` and ``port``, or of the environment."""
    # libpq would use the settings, asyncpg the address.
    numbered = re.search(r":\d+(?:,|$)", hosts)
    if (hosts and "host" in given) or (numbered and "port" in given):
        raise ConfigurationError(
            f"the store URL of {found} has hosts or ports in its address and in ?host= or ?port= too: give them once"
        )
    # As in libpq, one port in the address leaves 5432 for the others.
    ports = given.get("port") or (None if numbered else os.environ.get("PGPORT"))
    # Only the address has escapes.
    listed = hosts or (given.get("host") or os.environ.get("PGHOST") or "").replace("%", "%25")
    order = addresses(listed, ports.split(",") if ports else ())
    if order is None:
        raise ConfigurationError(
            f"the store URL of {found} has {shown('host', unquote(listed))} and {shown('port', ports or '')}, which is "
            "not understood; form: host1:5432,host2:5432 or ?host=host1,host2&port=5432,5432, an IPv6 address in "
            "square brackets"
        )
    return order


def _wanted(found: PostgresSettings, given: Mapping[str, str]) -> str:
    wanted = given.get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS") or "any"
    if wanted not in WANTED:
        raise ConfigurationError(
            f"the store URL of {found} has {shown('target_session_attrs', wanted)} (or PGTARGETSESSIONATTRS has); it "
            f"is one of: {', '.join(WANTED)}"
        )
    return wanted


def _with_option(found: PostgresSettings, name: str, value: str) -> PostgresSettings:
    if name == "load_balance_hosts":
        raise ConfigurationError(
            f"the store URL of {found} has a setting load_balance_hosts: redrive does not spread its sessions, as one "
            "server writes; it tries the last good one first"
        )
    read = _OPTIONS.get(name)
    known = None if read is None else read(value)
    if known is None:
        raise ConfigurationError(
            f"the store URL of {found} has a setting {shown(name, value)}; settings: schema=name (letters, digits "
            "and _), notify=on|off, pgbouncer=on|off, direct=host:port,host:port, pool=10, synchronous_commit=on|off, "
            "timeout=30s, connect_timeout=2s (not less), and of the libraries: "
            f"{', '.join(sorted(LIBRARY | SERVERS))}"
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


def _connect_span(value: str) -> timedelta | None:
    # libpq writes seconds as a bare number.
    span = _span(f"{value}s" if value.isdecimal() else value)
    return None if span is None or span < SHORTEST else span


def _direct(value: str) -> Servers | None:
    order = addresses(value.replace("%", "%25"))
    return Servers(order) if order is not None and order[0].host else None


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "schema": lambda value: value if _SCHEMA.fullmatch(value) and not value.startswith("pg_") else None,
    "notify": _switch,
    "pgbouncer": _switch,
    "direct": _direct,
    "pool": _count,
    "synchronous_commit": _switch,
    "timeout": _span,
    "connect_timeout": _connect_span,
}
