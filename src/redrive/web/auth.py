"""The sender of a request: the ways to authenticate, given as ``auth=``.

There is no default, so that no dashboard is open by accident. `NoAuth` serves users of this machine only, and each page
warns of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec

from redrive.errors import ConfigurationError
from redrive.operate.exchange import Role, User
from redrive.web import rng
from redrive.web.peers import Peers

__all__ = ["Account", "Auth", "Credentials", "NoAuth", "Proxy", "Resolver", "Users", "hash_password", "hash_token"]

# The cost of a password check (scrypt, RFC 7914): about 50 ms and 16 MiB.
_COST: Final = 2**14

_PASSWORD: Final = re.compile(r"scrypt:([0-9a-f]{2})+:[0-9a-f]{64}")
_TOKEN: Final = re.compile(r"[0-9a-f]{64}")

# A secret of this length cannot be found by trials, if it is random.
_SHORTEST_SECRET: Final = 16

# Checked for an unknown name.
_UNKNOWN: Final = f"scrypt:{'00' * 16}:{'00' * 32}"


class Credentials(msgspec.Struct, frozen=True, gc=False):
    """The parts of a request from which its sender is found.

    Attributes:
        headers: with names in lower case.
        session: the name in a valid session cookie of this dashboard.
        peer: address of the other end of the connection, which no header has changed; None for a Unix socket, and where
            the server or middleware does not show the connection.
        scope: the ASGI scope, for applications that put their user there.
    """

    headers: Mapping[str, str]
    session: str | None = None
    peer: str | None = None
    scope: Mapping[str, object] = {}

    @property
    def bearer(self) -> str | None:
        """The bearer token of the request."""
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else None

    @property
    def basic(self) -> tuple[str, str] | None:
        """Name and password of HTTP Basic authentication."""
        kind, _, encoded = self.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return (name, password) if colon else None


class Auth(Protocol):
    """A way to authenticate."""

    def identify(self, credentials: Credentials) -> User | None:
        """Return the sender of a request, or None for a stranger."""


Resolver: TypeAlias = Callable[[Credentials], Awaitable[User | str | None]]
"""A function of the application: it returns the user, None for a stranger, or the address of a login page."""


@dataclass(frozen=True, slots=True)
class NoAuth:
    """No authentication: each user of this machine may operate, and no other machine is served.

    Args:
        name: of the user, for the audit log.
    """

    name: str = "local"

    def identify(self, _: Credentials) -> User | None:
        """Return the one user."""
        return User(self.name, Role.OPERATE)


class Account(msgspec.Struct, frozen=True, gc=False):
    """A user.

    Attributes:
        role: what the user may do.
        password: as `hash_password` returns it; None for a program.
        token: the bearer token, as `hash_token` returns it; None for a person.
    """

    role: Role = Role.READ
    password: str | None = None
    token: str | None = None


def hash_token(token: str) -> str:
    """Return what is stored of a token: its SHA-256 in hexadecimal digits. A token is long and random."""
    return hashlib.sha256(token.encode()).hexdigest()


def hash_password(password: str, *, salt: bytes | None = None) -> str:
    """Return what is stored of a password: ``scrypt:SALT:HASH`` in hexadecimal digits.

    Args:
        password: the password.
        salt: for tests; by default 16 random bytes.
    """
    salt = rng.salt() if salt is None else salt
    derived = hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=8, p=1, dklen=32)
    return f"scrypt:{salt.hex()}:{derived.hex()}"


@dataclass(frozen=True, slots=True)
class Users:
    """Users with passwords, for logins on a page or by HTTP Basic, and programs with bearer tokens.

    Args:
        accounts: by the name of the user.
        proxies: addresses and networks of the proxies whose ``X-Forwarded-For`` is believed. Failed logins are counted
            by user and address; without it all users of a proxy have the address of the proxy.

    Raises:
        ConfigurationError: there is no account, or one has no password and no token, or not a hash of it; a proxy is
            neither an address nor a network.
    """

    accounts: Mapping[str, Account]
    proxies: Collection[str] = ()

    def __post_init__(self) -> None:
        Peers(self.proxies, "Users(proxies=)")
        if not self.accounts:
            raise ConfigurationError("Users: there is no account, so that nobody could log in")
        for name, account in self.accounts.items():
            if account.password is None and account.token is None:
                raise ConfigurationError(f"Users: {name!r} has neither a password nor a token")
            if account.password is not None and not _PASSWORD.fullmatch(account.password):
                raise ConfigurationError(
                    f"Users: the password of {name!r} is not stored as hash_password(...) returns it"
                )
            if account.token is not None and not _TOKEN.fullmatch(account.token):
                raise ConfigurationError(f"Users: the token of {name!r} is not stored as hash_token(...) returns it")

    def digest(self, name: str) -> str | None:
        """Return the digest of an account; its sessions end when it changes. None if there is no such account."""
        each = self.accounts.get(name)
        return None if each is None else hash_token(f"{each.role}:{each.password}:{each.token}")

    def check(self, name: str, password: str) -> User | None:
        """Return the user of a name and a password. An unknown name takes as long as a wrong password."""
        account = self.accounts.get(name)
        stored = account.password if account is not None else None
        _, salt, _ = (stored or _UNKNOWN).split(":")
        is_right = hmac.compare_digest(hash_password(password, salt=bytes.fromhex(salt)), stored or "")
        return User(name, account.role) if account is not None and is_right else None

    def identify(self, credentials: Credentials) -> User | None:
        """Return the user of the session, of the bearer token, or of HTTP Basic."""
        if credentials.session is not None:
            account = self.accounts.get(credentials.session)
            return None if account is None else User(credentials.session, account.role)
        if credentials.bearer is not None:
            return self._of_token(hash_token(credentials.bearer))
        return None if credentials.basic is None else self.check(*credentials.basic)

    def _of_token(self, given: str) -> User | None:
        # All of them are compared, so that the time does not show how much was right.
        known = self.accounts.items()
        found = [User(name, each.role) for name, each in known if hmac.compare_digest(given, each.token or "")]
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Proxy:
    """Users whom a proxy has authenticated, such as oauth2-proxy.

    The headers of a request are believed if it comes from one of the peers and has the secret; give at least one of the
    two. The secret is needed where the address of the connection is not known: behind a Unix socket, in Django, behind
    middleware that wraps requests, and on a server other than uvicorn.

    Args:
        peers: addresses and networks of the proxies.
        operators: the groups or users that may operate; all others may read.
        user_header: the header with the name of the user.
        groups_header: the header with the groups, separated by commas.
        secret: a text that only the proxy and this process have, of at least 16 characters.
        secret_header: the header in which the proxy sends it.

    Raises:
        ConfigurationError: a peer is neither an address nor a network, there are neither peers nor a secret, or the
            secret is too short.
    """

    peers: Collection[str] = ()
    operators: Collection[str] = ()
    user_header: str = "x-forwarded-user"
    groups_header: str = "x-forwarded-groups"
    secret: str | None = field(default=None, repr=False)
    secret_header: str = "x-proxy-secret"  # noqa: S105 - the name of a header

    def __post_init__(self) -> None:
        Peers(self.peers, "Proxy")
        if not self.peers and self.secret is None:
            raise ConfigurationError("Proxy: give peers=, the addresses of the proxies, or secret=")
        if self.secret is not None and len(self.secret) < _SHORTEST_SECRET:
            raise ConfigurationError(f"Proxy: the secret has fewer than {_SHORTEST_SECRET} characters")

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that are believed, in lower case; a request has each of them once."""
        return tuple(each.lower() for each in (self.user_header, self.groups_header, self.secret_header))

    def identify(self, credentials: Credentials) -> User | None:
        """Return the user in the headers of the proxy."""
        user, groups, _ = (credentials.headers.get(each, "") for each in self.headers)
        if not user or not self._believes(credentials):
            return None
        names = {each.strip() for each in groups.split(",")} | {user}
        return User(user, Role.OPERATE if names & set(self.operators) else Role.READ)

    def _believes(self, credentials: Credentials) -> bool:
        if self.peers and credentials.peer not in Peers(self.peers, "Proxy"):
            return False
        given = credentials.headers.get(self.secret_header.lower(), "")
        return self.secret is None or hmac.compare_digest(given.encode(), self.secret.encode())
