"""The order in which the servers of a URL are tried, without any server."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from redrive.errors import ConfigurationError, StoreOpenError, StoreUnreachable
from redrive.stores.drivers.postgres.errors import no_server
from redrive.stores.drivers.postgres.servers import WANTED, Address, NoServer, Servers, Session, addresses
from redrive.stores.drivers.postgres.settings import PostgresSettings, parse_url

A, B, C = Address("a"), Address("b", 5433), Address("::1", 5434)

URL = "postgresql://u:secret@a,b:5433,[::1]:5434/d"

PRIMARY, LOCKED, STANDBY = "primary", "locked", "standby"
"""A server that writes, one that does not by its settings, and a standby."""


def settings(wanted: str = "any", **options: str) -> PostgresSettings:
    """Return the settings of a URL with three servers."""
    query = "&".join(f"{name}={value}" for name, value in {"target_session_attrs": wanted, **options}.items())
    return parse_url(f"{URL}?{query}")


class Fleet:
    """Servers that answer, each after a second, or do not.

    Args:
        kinds: what each server is, or the error of an attempt.
    """

    def __init__(self, found: PostgresSettings, kinds: dict[Address, str | Exception]) -> None:
        self.kinds = kinds
        self.settings = found
        self.tried: list[tuple[Address, float]] = []
        self.closed: list[Address] = []
        self.now = 0.0

    def connect(self, *, until: float = 1e9) -> Address:
        """Return the server to which the connection was made."""
        self.tried, self.closed = [], []
        trying: Any = self.settings.search(self.settings.servers, now=self.now, until=until, close=self.closed.append)
        with contextlib.closing(trying):
            attempt = next(trying)
            while True:
                self.tried.append(attempt)
                kind = self.kinds[attempt.address]
                self.now += attempt.seconds if isinstance(kind, TimeoutError) else 0.125
                session = Session(attempt.address, kind == STANDBY, kind in {STANDBY, LOCKED})
                try:
                    attempt = trying.send((kind if isinstance(kind, Exception) else session, self.now))
                except StopIteration as stop:
                    return stop.value

    @property
    def order(self) -> list[Address]:
        """The servers that were tried."""
        return [address for address, _ in self.tried]


SILENT = TimeoutError("no answer within 2.0 s")
REFUSED = ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 5432)")


@pytest.mark.parametrize(
    ("wanted", "kinds", "expected"),
    [
        ("any", [STANDBY, PRIMARY, PRIMARY], A),
        ("read-write", [STANDBY, LOCKED, PRIMARY], C),
        ("read-only", [PRIMARY, LOCKED, STANDBY], B),
        ("primary", [STANDBY, LOCKED, PRIMARY], B),
        ("standby", [PRIMARY, LOCKED, STANDBY], C),
        ("prefer-standby", [PRIMARY, STANDBY, STANDBY], B),
        ("prefer-standby", [PRIMARY, PRIMARY, SILENT], A),
        ("read-write", [SILENT, REFUSED, PRIMARY], C),
    ],
)
def test_the_first_server_of_the_wanted_kind_is_taken(wanted: str, kinds: list[Any], expected: Address):
    """The others are closed, and the one that was taken is not."""
    fleet = Fleet(settings(wanted), dict(zip([A, B, C], kinds, strict=True)))

    assert expected == fleet.connect()
    answered = {each for each in fleet.order if isinstance(fleet.kinds[each], str)}
    assert answered - {expected} == set(fleet.closed)


def test_the_last_good_server_is_tried_first():
    """A server that is silent delays the first connection only, and the way back is the same."""
    fleet = Fleet(settings("read-write"), {A: SILENT, B: PRIMARY, C: STANDBY})
    fleet.connect()
    fleet.connect()
    assert [B] == fleet.order
    fleet.kinds = {A: PRIMARY, B: STANDBY, C: STANDBY}

    assert A == fleet.connect()
    assert [B, A] == fleet.order
    assert A == fleet.connect()
    assert [A] == fleet.order


def test_a_server_that_has_ceased_to_write_is_tried_last():
    """Where any server may be taken, the one that refused to write is not taken again at once."""
    fleet = Fleet(settings(), {A: STANDBY, B: PRIMARY, C: STANDBY})
    assert A == fleet.connect()
    fleet.settings.servers.lost(A)
    fleet.settings.servers.lost(A)

    assert B == fleet.connect()
    assert (B, C, A) == fleet.settings.servers.order


@pytest.mark.parametrize(
    ("found", "limits"),
    [
        (settings(), [2, 2, 2]),
        (settings(connect_timeout="3"), [3, 3, 3]),
        (settings(connect_timeout="2500ms", timeout="4s"), [2.5, 1.5]),
        (parse_url("postgresql://a/d"), [30]),
        (parse_url("postgresql://a/d?connect_timeout=5s"), [5]),
        (parse_url("postgresql://a/d?connect_timeout=1h"), [30]),
    ],
)
def test_each_server_has_a_limit(found: PostgresSettings, limits: list[float]):
    """It is two seconds for each of several servers and the timeout for the only one; all have the timeout together."""
    fleet = Fleet(found, dict.fromkeys([A, B, C], SILENT))
    with pytest.raises(NoServer):
        fleet.connect()

    assert limits == [seconds for _, seconds in fleet.tried]


def test_a_caller_with_less_time_tries_fewer_servers():
    """The error names those that were not tried."""
    fleet = Fleet(settings(), dict.fromkeys([A, B, C], SILENT))
    with pytest.raises(NoServer) as failed:
        fleet.connect(until=3.0)

    assert [(A, 2.0), (B, 1.0)] == fleet.tried
    error = no_server(failed.value, fleet.settings)
    assert isinstance(error, StoreUnreachable)
    assert "[::1]:5434: not tried, as the time of this call was up" in str(error)


def test_callers_with_little_time_try_every_server_in_turn():
    """A caller that gives up before the limit of a server leaves the next ones to the caller after it."""
    fleet = Fleet(settings(), {A: SILENT, B: SILENT, C: PRIMARY})
    for expected in ([A], [B]):
        with pytest.raises(NoServer):
            fleet.connect(until=fleet.now + 1)
        assert expected == fleet.order

    assert C == fleet.connect(until=fleet.now + 1)


def test_a_caller_that_is_cancelled_leaves_the_next_servers_to_others():
    """Its time may be limited by its own caller."""
    found = settings("primary")
    for expected in (A, B, C, A):
        trying: Any = found.search(found.servers, now=0, until=9, close=lambda each: None)
        assert expected == next(trying).address
        trying.close()


def test_an_error_has_the_reason_of_each_server():
    """It has all of them, and no password."""
    fleet = Fleet(settings("primary"), {A: SILENT, B: REFUSED, C: STANDBY})
    with pytest.raises(NoServer) as failed:
        fleet.connect()

    assert (
        "PostgreSQL a,b:5433,[::1]:5434/d (schema redrive) cannot be reached; this transaction wrote nothing (a:5432: "
        "no answer within 2.0 s; b:5433: Connection refused; [::1]:5434: is a standby, and "
        "target_session_attrs=primary)" == str(no_server(failed.value, fleet.settings))
    )


def test_a_refusal_of_one_server_is_not_over_by_itself():
    """A wrong password, or a database that does not exist, is another error than servers that are away."""
    refusal = RuntimeError('connection to server at "10.0.0.1" failed: FATAL:  password authentication failed')
    fleet = Fleet(settings(), {A: SILENT, B: refusal, C: REFUSED})
    with pytest.raises(NoServer) as failed:
        fleet.connect()

    error = no_server(failed.value, fleet.settings)
    assert isinstance(error, StoreOpenError)
    assert "b:5433: FATAL:  password authentication failed; [::1]:5434: Connection refused" in str(error)


def test_the_only_server_has_its_own_error():
    """The address is in the name of the database already."""
    found = parse_url("postgresql://a/d?target_session_attrs=read-write")
    with pytest.raises(NoServer) as failed:
        Fleet(found, {A: LOCKED}).connect()

    assert (
        "PostgreSQL a/d (schema redrive) cannot be used: it is a primary that is read only, and "
        "target_session_attrs=read-write" == str(no_server(failed.value, found))
    )


def test_a_spare_session_is_closed_if_the_caller_gives_up():
    """The caller may be cancelled while it waits for the next server."""
    closed: list[Address] = []
    found = settings("prefer-standby")
    trying: Any = found.search(found.servers, now=0, until=9, close=closed.append)
    next(trying)
    trying.send((Session(A, is_standby=False, is_read_only=False), 1))
    trying.close()

    assert [A] == closed


@pytest.mark.parametrize(
    ("hosts", "ports", "expected"),
    [
        ("a", [], [A]),
        ("a,b:5433,[::1]:5434", [], [A, B, C]),
        ("a:,b", ["1"], [Address("a", 1), Address("b", 1)]),
        ("a,::1", ["", "5434"], [A, C]),
        ("%2Frun%2Fpg,/tmp:5433", [], [Address("/run/pg"), Address("/tmp", 5433)]),  # noqa: S108 - a folder of sockets
        ("", [], [Address("")]),
        (":5433", [], [Address("", 5433)]),
        ("a,b", ["1", "2", "3"], None),
        ("a,", [], None),
        ("a:0", [], None),
        ("a:65536", [], None),
        ("a:b", [], None),
        ("a", ["x"], None),
        ("[::1", [], None),
        ("u@a", [], None),
    ],
)
def test_lists_of_servers_are_read(hosts: str, ports: list[str], expected: list[Address] | None):
    """Names, IPv6 addresses and folders of sockets, with ports of their own or from a list."""
    assert (None if expected is None else tuple(expected)) == addresses(hosts, ports)


@pytest.mark.parametrize(
    ("url", "order"),
    [
        ("postgresql:///d?host=a,b&port=5432,5433", (A, B)),
        ("postgresql:///d?host=a,b", (A, Address("b"))),
        ("postgresql:///d?host=::1&port=5434", (C,)),
        ("postgresql://a/d?port=7", (Address("a", 7),)),
        ("postgresql://a,[::1]:5434/d", (A, C)),
        ("postgresql:///d", (Address(""),)),
    ],
)
def test_servers_are_in_the_address_or_in_settings(url: str, order: tuple[Address, ...], monkeypatch: Any):
    """Both drivers get the same servers, however the URL names them."""
    for name in ("PGHOST", "PGPORT", "PGTARGETSESSIONATTRS"):
        monkeypatch.delenv(name, raising=False)

    assert Servers(order) == parse_url(url).servers


def test_the_environment_names_servers(monkeypatch: pytest.MonkeyPatch):
    """The variables of libpq hold where the URL has no host, and their values are checked too."""
    monkeypatch.setenv("PGHOST", "a,b")
    monkeypatch.setenv("PGPORT", "5432,5433")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "primary")

    assert Servers((A, B), "primary") == parse_url("postgresql:///d").servers
    assert "PostgreSQL a,b/d (schema redrive)" == str(parse_url("postgresql:///d"))
    assert (
        Servers((Address("c", 1),), "standby") == parse_url("postgresql://c:1/d?target_session_attrs=standby").servers
    )
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "writable")
    with pytest.raises(ConfigurationError, match="'writable' .or PGTARGETSESSIONATTRS"):
        parse_url("postgresql://c:1/d")


@pytest.mark.parametrize("wanted", WANTED)
def test_every_kind_of_server_can_be_wanted(wanted: str):
    """The listening connection past a pool wants the same."""
    found = parse_url(f"postgresql://a/d?pgbouncer=on&direct=a,b:5433&target_session_attrs={wanted}")

    assert Servers((A, B), wanted) == found.direct
    assert wanted == found.servers.wanted


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "postgresql://a/d?target_session_attrs=readwrite",
            "one of: any, read-write, read-only, primary",
        ),
        ("postgresql://a/d?load_balance_hosts=random", "does not spread its sessions"),
        ("postgresql://a/d?connect_timeout=1", r"connect_timeout='1'.*connect_timeout=2s \(not less\)"),
        ("postgresql://a/d?host=b", "give them once"),
        ("postgresql://a:1/d?port=2", "give them once"),
        ("postgresql://a,b/d?port=1,2,3", "host='a,b' and port='1,2,3', which is not understood"),
    ],
)
def test_servers_that_can_be_read_in_two_ways_are_refused(url: str, reason: str):
    """The error has the form to write."""
    with pytest.raises(ConfigurationError, match=reason):
        parse_url(url)
