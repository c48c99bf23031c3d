"""The settings of an SQLite or Turso database, and the URLs that give them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import parse_duration
from redrive.stores.urls import redacted, shown

_FORMS = (
    "sqlite:///relative.db, sqlite:////absolute.db, turso:///app.db, postgresql://user@host/database, memory:// "
    "(in a path, write # as %23, ? as %3F, % as %25, @ as %40)"
)
_LONGEST_WAIT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SQLiteSettings:
    """The settings of an SQLite or Turso database."""

    path: Path | None  # path of the file; None means in memory
    synchronous: str = "FULL"  # ``FULL`` (an acknowledged enqueue survives a power cut) or ``NORMAL``
    busy_timeout: timedelta = timedelta(seconds=10)  # how long to wait for another process that writes

    def __str__(self) -> str:
        """Return the name of the database in messages."""
        return str(self.path) if self.path else "the database in memory"


def parse_url(url: str) -> SQLiteSettings:
    """Parse a store URL: ``sqlite:///app.db?busy_timeout=10s``, ``turso:///app.db`` or ``memory://``.

    Raise `ConfigurationError` if the URL is not understood, or has an unknown setting.
    """
    if url == "memory://":
        return SQLiteSettings(None)
    # urlsplit refuses some texts with errors that contain them.
    parts = urlsplit(url if url.lower().startswith(("sqlite:///", "turso:///")) else "")
    # Only servers have logins. A part of a login must not become the name of a file or of a setting, which errors show.
    login = re.search(":.*@", url.partition("://")[2], re.DOTALL) is not None
    if parts.netloc or login or "#" in url or len(parts.path) < 2:  # noqa: PLR2004 - slash and name
        raise ConfigurationError(f"the store URL {redacted(url)!r} is not understood; {_instead(url)}forms: {_FORMS}")
    settings = SQLiteSettings(Path(unquote(parts.path[1:])).absolute())
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        settings = _with_option(settings, name, value, url)
    return settings


def _instead(url: str) -> str:
    """Return what is right instead of a URL with a driver of SQLAlchemy."""
    scheme, mark, driver = url.partition(":")[0].partition("+")
    return f"leave +{driver} out; " if mark and scheme.lower() in {"postgresql", "postgres", "sqlite"} else ""


def _with_option(settings: SQLiteSettings, name: str, value: str, url: str) -> SQLiteSettings:
    if name == "synchronous" and value.upper() in {"FULL", "NORMAL"}:
        return replace(settings, synchronous=value.upper())
    if name == "busy_timeout" and timedelta(0) < _duration(value) <= _LONGEST_WAIT:
        return replace(settings, busy_timeout=_duration(value))
    raise ConfigurationError(
        f"the store URL {redacted(url)!r} has a setting {shown(name, value)}; "
        "settings: synchronous=full|normal, busy_timeout=10s (at most 1d)"
    )


def _duration(value: str) -> timedelta:
    try:
        return parse_duration(value)
    except PolicyError:
        return timedelta(0)
