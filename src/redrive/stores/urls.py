"""Store URLs for messages, logs and screens, without passwords."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

HIDDEN = "***"

# Settings with values that are shown. Any other value may be a password, or a part of one.
_HARMLESS = frozenset({
    "application_name", "busy_timeout", "connect_timeout", "direct", "host", "load_balance_hosts", "notify", "passfile",
    "pgbouncer", "pool", "port", "schema", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "synchronous",
    "synchronous_commit", "target_session_attrs", "timeout", "user",
})  # fmt: skip

_FILE = re.compile(r"(?i:sqlite|turso|memory):[^@:=?]*")
_RELATIVE = re.compile(r"(?i:sqlite|turso):///(?=[^/])")
_SCHEME = re.compile(r"[\w+.-]*", re.ASCII)
_PLAIN = re.compile(r"[\w. /\\-]*", re.ASCII)
_HOST = r"(\[[0-9A-Fa-f:.%]*\]|[\w.~%-]*)(:\d*)?"
_ADDRESS = re.compile(rf"{_HOST}(,{_HOST})*(?=[/?]|$)")
_LOGIN = re.compile(r"(?<=://)[^\s@/'\"<>]*:[^\s'\"<>]*@")
_USER = re.compile(r"(?<=://)[^@/?]*@|(?<=[?&])user=[^&]*&|[?&]user=[^&]*$")
_PASSWORD = re.compile(r"(?i)\b(\w*(?:password|passwd|pwd)\w*\s*=\s*)('[^']*'|[^\s;&'\"]+)")


# A URL that cannot be parsed is shown as well, since the message describes its error. So the functions do not parse it:
# they hide every part that could belong to a password, even if it does not.
def redacted(url: str) -> str:
    """Return a URL, or a text that was given as one, without its secrets.

    ``***`` replaces passwords, the values of unknown settings, and every part that an unescaped ``@``, ``/``, ``?`` or
    ``#`` makes ambiguous.
    """
    address, mark, query = url.partition("?")
    if _FILE.fullmatch(address) and "@" not in query:
        return address + (f"?{_settings(query)}" if mark else "")
    scheme, mark, rest = url.partition("://")
    if not mark or not _SCHEME.fullmatch(scheme):
        return url if _PLAIN.fullmatch(url) else HIDDEN
    credentials, at, address = rest.rpartition("@")
    found = _ADDRESS.match(address)
    named = credentials.partition(":")[0] + address.partition("?")[0]
    if found is None or re.search("[?#]", credentials) or re.search("[;=]", named):
        return f"{scheme}://{HIDDEN}"
    path, mark, query = address[found.end() :].partition("?")
    path, sharp, _ = path.partition("#")
    shown_address = found[0] + path + (f"#{HIDDEN}" if sharp else f"?{_settings(query)}" if mark else "")
    return f"{scheme}://{_user(credentials)}{at}{shown_address}"


def located(url: str) -> str:
    """Return a URL without its secrets, in which the path of a file is absolute."""
    found = _RELATIVE.match(url)
    return redacted(url if found is None else f"{found[0]}{quote(str(Path.cwd()))}/{url[found.end() :]}")


def without_user(url: str) -> str:
    """Return a URL without its secrets and without the name of its user."""
    return _USER.sub("", redacted(url))


def shown(name: str, value: str) -> str:
    """Return a setting of a URL as ``name='value'``, or ``name='***'`` if the value may be a secret."""
    return f"{name}={value if name in _HARMLESS and '@' not in value else HIDDEN!r}"


def cleared(text: str) -> str:
    """Return a text, such as an error of a library, without the passwords of connection strings in it.

    ``***`` replaces a login with a colon between ``://`` and ``@``, and the values of settings such as ``password``.
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
