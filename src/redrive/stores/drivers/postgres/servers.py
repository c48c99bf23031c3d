"""The servers of a store URL, and the order in which both drivers try them.

Neither library is given more than one server: asyncpg has one timeout for all of them, so that a first server that does
not answer hides the second one. `search` decides which server is tried next, for how long, and whether a session is
kept; it opens no connection and reads no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

C = TypeVar("C")

# The values of target_session_attrs, as libpq has them.
WANTED = ("any", "read-write", "read-only", "primary", "standby", "prefer-standby")

PORT = 5432
_PORTS = 65_535

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:@\[\]]*))(?::(?P<port>\d*))?")
_V6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")


class Address(NamedTuple):
    """The address of one server."""

    host: str  # a name, an IP address or the folder of a socket; empty for the local server as the library finds it
    port: int = PORT

    def __str__(self) -> str:
        """Return the address as it is written in a URL."""
        if not self.host:
            return "the local server"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def place(self) -> dict[str, Any]:
        """The arguments of a library that connects there."""
        return {"host": self.host, "port": self.port} if self.host else {"port": self.port}


def addresses(hosts: str, ports: Sequence[str] = ()) -> tuple[Address, ...] | None:
    """Return the addresses of a list such as ``db1:5433,[::1]``, or None if it cannot be read.

    Args:
        hosts: names, IP addresses and folders of sockets, with escapes (``%2F``), each with its port or without.
        ports: the ports of those without one: one for each, or one for all.
    """
    names = hosts.split(",")
    if len(ports) not in {0, 1, len(names)}:
        return None
    wanted = list(ports) * len(names) if len(ports) == 1 else list(ports) or [""] * len(names)
    found = tuple(_address(name, port) for name, port in zip(names, wanted, strict=True))
    read = tuple(each for each in found if each is not None)
    # Of a list, each server has a name.
    return read if read == found and (len(read) == 1 or all(each.host for each in read)) else None


def _address(text: str, default: str) -> Address | None:
    if _V6.fullmatch(text):
        host, port = text, default
    else:
        read = _ADDRESS.fullmatch(text)
        if read is None:
            return None
        host, port = unquote(read["v6"] or read["name"]), read["port"] or default
    number = int(port) if port.isdecimal() else PORT if not port else 0
    return Address(host, number) if 0 < number <= _PORTS else None


class Unsuitable(Exception):
    """The server answers, and is not what ``target_session_attrs`` asks for."""


class TimeIsUp(Exception):
    """The server was not tried, because the time of the call was up."""

    def __str__(self) -> str:
        """Return the reason."""
        return "not tried, as the time of this call was up"


def no_answer(seconds: float) -> str:
    """Return the reason where a server has not answered within so many seconds."""
    return f"no answer within {seconds:.1f} s"


class NoServer(Exception):
    """No server could be used.

    Attributes:
        failures: the reason for each of them, in the order in which they were tried.
    """

    def __init__(self, failures: Sequence[tuple[Address, Exception]]) -> None:
        super().__init__(*failures)
        self.failures = failures


class Attempt(NamedTuple):
    """The next server to be tried."""

    address: Address
    seconds: float  # how long it may take


class Session(NamedTuple, Generic[C]):
    """A session that was opened."""

    connection: C
    is_standby: bool
    is_read_only: bool  # it cannot write, on a standby or by its settings


# Yields the servers to be tried, gets what came of each and the present instant, and returns the connection to use.
Search = Generator[Attempt, tuple[Session[C] | Exception, float], C]


@dataclass(slots=True)
class Servers:
    """The servers of a store, in the order in which they are tried: the last one that was found good is the first."""

    order: tuple[Address, ...] = (Address(""),)
    wanted: str = "any"  # target_session_attrs
    turn: int = field(default=0, compare=False)  # how often one was lost; sessions from before are not used any more

    def found(self, address: Address) -> None:
        """Try a server first from now on."""
        if self.order[0] != address:
            self.order = (address, *(each for each in self.order if each != address))

    def lost(self, address: Address) -> None:
        """Try a server last from now on: it has ceased to write, or to answer."""
        self.turn += 1
        if self.order[-1] != address:
            self.order = (*(each for each in self.order if each != address), address)

    def suits(self, session: Session[Any]) -> bool:
        """Return True if a session is one that ``target_session_attrs`` asks for."""
        match self.wanted:
            case "read-write":
                return not session.is_read_only
            case "read-only":
                return session.is_read_only
            case "primary":
                return not session.is_standby
            case "standby" | "prefer-standby":
                return session.is_standby
        return True

    def unsuitable(self, session: Session[Any]) -> Unsuitable:
        """Return the reason why a session does not suit."""
        kind = "is a standby" if session.is_standby else "is a primary" + " that is read only" * session.is_read_only
        return Unsuitable(f"{kind}, and target_session_attrs={self.wanted}")


def search(servers: Servers, *, limit: float, now: float, until: float, close: Callable[[C], None]) -> Search[C]:
    """Yield the servers to be tried, one after the other; return the connection to use.

    For each the caller sends a session, or the error, and the present instant.

    Args:
        servers: the servers, whose order it changes.
        limit: seconds for each of them.
        now: the present instant of any clock, in seconds.
        until: the instant after which no further server is tried.
        close: closes a connection that is not used.

    Raises:
        NoServer: none could be used.
    """
    failures: list[tuple[Address, Exception]] = []
    spare: tuple[Address, C] | None = None
    untried = list(servers.order)
    try:
        for address in servers.order:
            if failures and now >= until:
                failures.append((address, TimeIsUp()))
                continue
            untried.remove(address)
            answer, now = yield Attempt(address, max(min(limit, until - now), 0.0))
            if isinstance(answer, Exception):
                failures.append((address, answer))
            elif servers.suits(answer):
                servers.found(address)
                untried.clear()
                return answer.connection
            elif servers.wanted == "prefer-standby" and spare is None:
                spare = address, answer.connection
            else:
                close(answer.connection)
                failures.append((address, servers.unsuitable(answer)))
        if spare is None:
            raise NoServer(failures)
        (address, connection), spare = spare, None
        servers.found(address)
        return connection
    finally:
        if spare is not None:
            close(spare[1])
        # The caller was cancelled, or had too little time. The next one may have as little.
        for address in reversed(untried):
            servers.found(address)
