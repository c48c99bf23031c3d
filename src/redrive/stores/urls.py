"""The URL of a store as it may be shown: in messages, logs and on screens no password appears.

A URL that cannot be read is shown as well, since the message says what is wrong with it. So nothing here parses it:
what could be a part of a password is left out, even where it is none.
"""

from __future__ import annotations

import re

__all__ = ["redacted", "shown"]

HIDDEN = "***"

_HARMLESS = frozenset({
    "application_name", "busy_timeout", "direct", "host", "notify", "passfile", "pgbouncer", "pool", "port", "schema",
    "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "synchronous", "target_session_attrs", "timeout", "user",
})  # fmt: skip
"""Settings whose values are shown. Any other one may be a password, or a piece of one."""

_FILE = re.compile(r"(?i:sqlite|turso|memory):[^@:=?]*")
_SCHEME = re.compile(r"[\w+.-]*", re.ASCII)
_PLAIN = re.compile(r"[\w. /\\-]*", re.ASCII)
_PLACE = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^:/?#\[\]]*)(:\d*)?(,(\[[0-9A-Fa-f:.%]*\]|[^:/?#\[\]]*)(:\d*)?)*(?=[/?]|$)")


def redacted(url: str) -> str:
    """Write a URL without what may be a secret.

    Args:
        url: of a store, or any text that was given as one.

    Returns:
        The URL with ``***`` in place of passwords, of the values of settings that are not known to be harmless, and of
        everything that an unescaped ``@``, ``/``, ``?`` or ``#`` makes ambiguous.
    """
    address, mark, query = url.partition("?")
    if _FILE.fullmatch(address):
        return address + (f"?{_settings(query)}" if mark else "")
    scheme, mark, rest = url.partition("://")
    if not mark or not _SCHEME.fullmatch(scheme):
        return url if _PLAIN.fullmatch(url) else HIDDEN
    credentials, at, place = rest.rpartition("@")
    found = _PLACE.match(place)
    if found is None or "?" in credentials or "#" in credentials:
        return f"{scheme}://{HIDDEN}"
    path, mark, query = place[found.end() :].partition("?")
    path, sharp, _ = path.partition("#")
    shown_place = found[0] + path + (f"#{HIDDEN}" if sharp else f"?{_settings(query)}" if mark else "")
    return f"{scheme}://{_user(credentials)}{at}{shown_place}"


def shown(name: str, value: str) -> str:
    """Write a setting of a URL, with its value if that cannot be a secret.

    Args:
        name: of the setting.
        value: of the setting.

    Returns:
        ``name='value'``, or ``name='***'``.
    """
    return f"{name}={value if name in _HARMLESS and '@' not in value else HIDDEN!r}"


def _user(credentials: str) -> str:
    user, colon, _ = credentials.partition(":")
    if not _PLAIN.fullmatch(user) or "/" in user:
        return HIDDEN
    return user + (f":{HIDDEN}" if colon else "")


def _settings(query: str) -> str:
    pairs = [each.partition("=") for each in query.partition("#")[0].split("&")]
    return "&".join(
        f"{name}={value if name in _HARMLESS else HIDDEN}" if mark else HIDDEN for name, mark, value in pairs
    )
