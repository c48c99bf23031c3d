"""A link that logs in once, for `redrive dev`."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path

from redrive.web import rng
from redrive.web.auth import hash_token


class LoginLink:
    """A link that logs in once. A new one is printed after it was used.

    The digest of its token is a file, which all processes of one server share: the process that renames it logs in.

    Args:
        path: of the file, in a folder that no other user can read.
        name: for the cookie of the session.
        show: prints the path of a new link.
    """

    def __init__(self, path: Path, name: str, show: Callable[[str], object]) -> None:
        self.name = name
        self._path = path
        self._used = path.with_suffix(".used")
        self._show = show

    def start(self) -> None:
        """Print the first link."""
        if not self._used.exists():
            self.offer()

    def offer(self) -> None:
        """Print a new link, unless one is valid."""
        token = rng.token()
        try:
            with self._path.open("x") as file:
                file.write(hash_token(token))
        except FileExistsError:
            return
        self._show(f"/login/{token}")

    def take(self, token: str) -> bool:
        """Return True if this is the token of the valid link, which is not valid any more then."""
        try:
            if not hmac.compare_digest(self._path.read_text(), hash_token(token)):
                return False
            self._path.rename(self._used)
        except FileNotFoundError:
            return False
        return True
