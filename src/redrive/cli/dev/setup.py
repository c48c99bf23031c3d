"""What the processes of `redrive dev` share."""

from __future__ import annotations

from collections.abc import Sequence
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
        apps: the Apps, as ``module:app``.
        folder: for the login link, the throw-away database and its clock.
        key: of sessions, so that a login lasts while children come and go.
        listening: the number of the socket of the dashboard.
        alive: the number of a pipe that closes when the watching process ends.
        memory: True for a throw-away database.
    """

    apps: tuple[str, ...]
    folder: str
    key: str
    listening: int
    alive: int
    port: int
    memory: bool

    @classmethod
    def new(cls, apps: Sequence[str], folder: Path, listening: int, alive: int, *, port: int, memory: bool) -> Setup:
        """Return the setup of a new server."""
        return cls(tuple(apps), str(folder), rng.token(), listening, alive, port, memory)

    @property
    def users(self) -> Users:
        """The one user of the dashboard, for whom sessions are valid."""
        return Users({"developer": Account(Role.OPERATE, token=hash_token(self.key))})

    def database(self, number: int) -> str:
        """Return the URL of the throw-away database of an app, by its place in the list."""
        return f"sqlite:///{quote(self.folder)}/jobs{number}.db?synchronous=normal"

    @property
    def offset(self) -> Path:
        """The file with the microseconds by which the clock was advanced."""
        return Path(self.folder, "offset")

    def link(self, number: int, path: str) -> LoginLink:
        """Return the link that logs in at the dashboard of an app, which has this path."""

        def show(link: str) -> None:
            """Print the link."""
            at = f"http://{HOST}:{self.port}{path.rstrip('/')}{link}"
            say(f"open {at} (it logs in once; Ctrl-C ends the server)")

        return LoginLink(Path(self.folder, f"link{number}"), hash_token(self.key)[:8], show)
