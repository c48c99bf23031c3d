"""The URL of a store as it may be shown: in messages, logs and on screens no password appears.

A URL that cannot be read is shown as well, since the message says what is wrong with it. So nothing here parses it:
what could be a part of a password is left out, even where it is none.
"""

from __future__ import annotations

import re

__all__ = ["cleared", "redacted", "shown"]

HIDDEN = "***"

_HARMLESS = frozenset({
    "application_name", "busy_timeout", "direct", "host", "notify", "passfile", "pgbouncer", "pool", "port", "schema",
    "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "synchronous", "synchronous_commit",
    "target_session_attrs", "timeout", "user",
})  # fmt: skip
"""Settings whose values are shown. Any other one may be a password, or a piece of one."""

_FILE = re.compile(r"(?i:sqlite|turso|memory):[^@:=?]*")
_SCHEME = re.compile(r"[\w+.-]*", re.ASCII)
_PLAIN = re.compile(r"[\w. /\\-]*", re.ASCII)
_HOST = r"(\[[0-9A-Fa-f:.%]*\]|[\w.~%-]*)(:\d*)?"
_PLACE = re.compile(rf"{_HOST}(,{_HOST})*(?=[/?]|$)")
_LOGIN = re.compile(r"(?<=://)[^\s@/'\"<>]*:[^\s'\"<>]*@")
_PASSWORD = re.compile(r"(?i)\b(\w*(?:password|passwd|pwd)\w*\s*=\s*)('[^']*'|[^\s;&'\"]+)")


def redacted(url: str) -> str:
    """Write a URL without what may be a secret.

    Args:
        url: of a store, or any text that was given as one.

    Returns:
        The URL with ``***`` in place of passwords, of the values of settings that are not known to be harmless, and of
        everything that an unescaped ``@``, ``/``, ``?`` or ``#`` makes ambiguous.
    """
    address, mark, query = url.partition("?")
    if _FILE.fullmatch(address) and "@" not in query:
        return address + (f"?{_settings(query)}" if mark else "")
    scheme, mark, rest = url.partition("://")
    if not mark or not _SCHEME.fullmatch(scheme):
        return url if _PLAIN.fullmatch(url) else HIDDEN
    credentials, at, place = rest.rpartition("@")
    found = _PLACE.match(place)
    named = credentials.partition(":")[0] + place.partition("?")[0]
    if found is None or re.search("[?#]", credentials) or re.search("[;=]", named):
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


def cleared(text: str) -> str:
    """Write a text of another program without the passwords of connection strings in it.

    Args:
        text: such as an error of a library, which may repeat a URL that it could not read.

    Returns:
        The text with ``***`` in place of what stands between ``://`` and ``@``, if there is a colon in it, and of the
        values of settings that are called a password.
    """
    return _PASSWORD.sub(rf"\1{HIDDEN}", _LOGIN.sub(f"{HIDDEN}@", text))


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
