"""``redrive --url``: a dashboard in place of an App. Rows of the table are sent as requests to its JSON API.

The names, options, checks and texts of a command are those of the command itself.
"""

from __future__ import annotations

import copy
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from redrive.errors import ConfigurationError, RedriveError, StoreUnreachable
from redrive.operate.exchange import Note
from redrive.operate.problems import error_of
from redrive.operate.table import ROWS, Call

# Seconds that the server may take for an answer.
PATIENCE: Final = 30

API: Final = "/api/v1"


class Server(msgspec.Struct, frozen=True):
    """A dashboard.

    Attributes:
        url: the place where it is mounted, without a slash at the end.
        token: the bearer token; None without authentication.
    """

    url: str
    token: str | None

    @classmethod
    def of(cls, url: str, token_file: str | None) -> Server:
        """Return the dashboard of the options; raise `ConfigurationError` if they are wrong."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise ConfigurationError(
                f"--url {url!r} is not the address of a dashboard, such as https://ops.example.com"
            )
        if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
            raise ConfigurationError(f"--url {url}: the token would be sent in plain text; use https://")
        return cls(url.rstrip("/"), None if token_file is None else _token(Path(token_file)))

    def perform(self, call: Call, *, dry_run: bool = False) -> Any:  # noqa: ANN401 - of the row
        """Send the request of a row, and return its struct; raise `RedriveError` with the sentence of the server."""
        is_action = call.row.form is not None
        query = ({"dry_run": "1"} if dry_run else {}) if is_action else call.query
        data = msgspec.json.encode(call.values) if is_action else None
        found = self._send(call.path, query, data)
        try:
            return msgspec.convert(found, Note if dry_run else call.row.data)
        except msgspec.ValidationError as error:
            raise StoreUnreachable(f"{self.url} does not answer as a dashboard of this version: {error}") from error

    def _send(self, path: str, query: Mapping[str, str], data: bytes | None) -> Any:  # noqa: ANN401 - JSON
        address = f"{self.url}{API}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(address, data, headers)  # noqa: S310 - `of` has checked the scheme
        try:
            with _OPENER.open(request, timeout=PATIENCE) as response:
                return msgspec.json.decode(response.read())
        except urllib.error.HTTPError as error:
            raise _refused(error.code, error.read(), self.url) from None
        except (OSError, msgspec.DecodeError) as error:
            reason = getattr(error, "reason", error)
            raise StoreUnreachable(f"{self.url} does not answer as a dashboard: {reason}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect, which would take the token elsewhere."""


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def _token(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--token-file {path} cannot be read: {error}") from error
    if not text or not text.isprintable() or " " in text:
        raise ConfigurationError(f"--token-file {path} has no token: one line with visible characters")
    return text


def _refused(status: int, raw: bytes, url: str) -> RedriveError:
    """Return the error of a problem document, of the class that its type names."""
    try:
        problem = msgspec.json.decode(raw, type=dict[str, Any])
        detail, kind = str(problem["detail"]), str(problem["type"]).rpartition("/")[2]
    except (msgspec.DecodeError, KeyError):
        return StoreUnreachable(f"{url} does not answer as a dashboard: status {status}")
    if status == HTTPStatus.UNAUTHORIZED:
        return ConfigurationError(f"{url} refuses the token: {detail}")
    return error_of(status, detail, kind)


# ---------------------------------------------------------------------------------------------------------- commands


def through(command: Any, words: Sequence[str], url: str, token_file: str | None) -> Any:  # noqa: ANN401 - typer's
    """Return a command, or a group of commands, that acts through a URL, and has no App."""
    found = copy.copy(command)
    children = getattr(command, "commands", None)
    if children is not None:
        found.commands = {name: through(child, (*words, name), url, token_file) for name, child in children.items()}
        return found
    name = " ".join(words)
    found.params = [each for each in command.params if each.name != "app"]

    def act(**params: object) -> None:
        """Run the command on the server in place of the App."""
        known = sorted({each for row in ROWS for each in row.words})
        if name not in known:
            raise ConfigurationError(
                f"redrive {name} does not work through --url: it needs the App and its database; "
                f"these commands do: {', '.join(known)}"
            )
        command.callback(app=Server.of(url, token_file), **params)

    found.callback = act
    return found
