"""What the processes of `redrive dev` share."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import msgspec

from redrive.cli.screen import say
from redrive.web import Account, Role, Users, hash_token, rng
from redrive.web.link import LoginLink

HOST = "127.0.0.1"


class Setup(msgspec.Struct, frozen=True, gc=False):
    """What the process that watches files gives to each child.

    Attributes:
        app: the App, as ``module:app``.
        folder: for the login link, the throw-away database and its clock.
        key: of sessions, so that a login lasts while children come and go.
        listening: the number of the socket of the dashboard.
        alive: the number of a pipe that closes when the watching process ends.
        memory: True for a throw-away database.
    """

    app: str
    folder: str
    key: str
    listening: int
    alive: int
    port: int
    memory: bool

    @classmethod
    def new(cls, app: str, folder: Path, listening: int, alive: int, *, port: int, memory: bool) -> Setup:
        """Return the setup of a new server."""
        return cls(app, str(folder), rng.token(), listening, alive, port, memory)

    @property
    def users(self) -> Users:
        """The one user of the dashboard, for whom sessions are valid."""
        return Users({"developer": Account(Role.OPERATE, token=hash_token(self.key))})

    @property
    def database(self) -> str:
        """The URL of the throw-away database."""
        return f"sqlite:///{quote(self.folder)}/jobs.db?synchronous=normal"

    @property
    def offset(self) -> Path:
        """The file with the microseconds by which the clock was advanced."""
        return Path(self.folder, "offset")

    def link(self) -> LoginLink:
        """Return the link that logs in."""
        return LoginLink(Path(self.folder, "link"), hash_token(self.key)[:8], self._show)

    def _show(self, path: str) -> None:
        say(f"open http://{HOST}:{self.port}{path}; the link logs in once, and Ctrl-C ends the server")
