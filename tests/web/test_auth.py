"""Ways to authenticate."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from redrive.errors import ConfigurationError
from redrive.web import Account, Credentials, NoAuth, Proxy, Role, User, Users, hash_password, hash_token

PASSWORD = hash_password("open sesame", salt=bytes(16))
USERS = Users({"ann": Account(Role.OPERATE, password=PASSWORD), "ci": Account(token=hash_token("t0k3n"))})


def _with(header: str) -> Credentials:
    return Credentials({"authorization": header})


def _basic(text: str) -> Credentials:
    return _with("Basic " + base64.b64encode(text.encode()).decode())


@pytest.mark.parametrize(
    ("credentials", "user"),
    [
        (_basic("ann:open sesame"), User("ann", Role.OPERATE)),
        (_basic("ann:open"), None),
        (_basic("ann"), None),
        (_basic("ci:"), None),
        (_basic("bob:open sesame"), None),
        (_with("Basic ???"), None),
        (_with("Bearer t0k3n"), User("ci", Role.READ)),
        (_with("bearer  t0k3n"), User("ci", Role.READ)),
        (_with("Bearer t0k3"), None),
        (_with("Bearer "), None),
        (_with("Digest t0k3n"), None),
        (Credentials({}), None),
        (Credentials({}, session="ann"), User("ann", Role.OPERATE)),
        (Credentials({}, session="gone"), None),
    ],
)
def test_users_are_found(credentials: Credentials, user: User | None):
    """Passwords, tokens and sessions name a user; nothing beside them does."""
    assert user == USERS.identify(credentials)


def test_passwords_have_random_salts():
    """Equal passwords are stored as different texts."""
    assert hash_password("a") != hash_password("a")


def test_an_account_has_a_digest():
    """Each change of an account changes its digest; others do not."""
    other = Users({"ann": Account(Role.READ, password=PASSWORD), "ci": USERS.accounts["ci"]})

    assert (False, True) == tuple(USERS.digest(name) == other.digest(name) for name in ("ann", "ci"))
    assert USERS.digest("gone") is None


@pytest.mark.parametrize(
    ("accounts", "message"),
    [
        ({}, "there is no account"),
        ({"ann": Account()}, "'ann' has neither a password nor a token"),
        ({"ann": Account(password="open sesame")}, "password of 'ann' is not stored"),
        ({"ci": Account(token="t0k3n")}, "token of 'ci' is not stored"),
    ],
)
def test_unusable_accounts_are_refused(accounts: dict[str, Account], message: str):
    """Configurations under which a user could not log in are errors at once."""
    with pytest.raises(ConfigurationError, match=message):
        Users(accounts)


PROXY = Proxy(peers=["10.0.0.1"], operators=["ops"])


@pytest.mark.parametrize(
    ("headers", "peer", "user"),
    [
        ({"x-forwarded-user": "ann"}, "10.0.0.1", User("ann", Role.READ)),
        ({"x-forwarded-user": "ann", "x-forwarded-groups": "dev, ops"}, "10.0.0.1", User("ann", Role.OPERATE)),
        ({"x-forwarded-user": "ops"}, "10.0.0.1", User("ops", Role.OPERATE)),
        ({"x-forwarded-user": "ann", "x-forwarded-groups": "opsx"}, "10.0.0.1", User("ann", Role.READ)),
        ({"x-forwarded-user": "ann"}, "10.0.0.2", None),
        ({"x-forwarded-user": "ann"}, None, None),
        ({}, "10.0.0.1", None),
    ],
)
def test_only_listed_proxies_are_believed(headers: dict[str, str], peer: str | None, user: User | None):
    """Headers with a user count only if they come from a proxy that is listed."""
    assert user == PROXY.identify(Credentials(headers, peer=peer))


@pytest.mark.parametrize(
    ("peers", "peer", "is_known"),
    [
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.1.2.3", False),
        (["127.0.0.1"], "::ffff:127.0.0.1", True),
        (["::1"], "::1", True),
        (["0.0.0.0/0"], None, False),
        (["0.0.0.0/0"], "", False),
    ],
)
def test_proxies_may_be_networks(peers: list[str], peer: str | None, is_known: bool):
    """A network lists all its addresses; an address that is not known is in none."""
    found = Proxy(peers=peers).identify(Credentials({"x-forwarded-user": "ann"}, peer=peer))

    assert (User("ann") if is_known else None) == found


SECRET = "a long random text"


@pytest.mark.parametrize(
    ("peers", "peer", "given", "is_believed"),
    [
        ([], None, SECRET, True),
        ([], "192.0.2.1", SECRET, True),
        ([], None, SECRET[:-1], False),
        ([], None, "\xe9", False),
        ([], None, None, False),
        (["10.0.0.1"], "10.0.0.1", SECRET, True),
        (["10.0.0.1"], "10.0.0.1", None, False),
        (["10.0.0.1"], None, SECRET, False),
    ],
)
def test_a_secret_names_the_proxy(peers: list[str], peer: str | None, given: str | None, is_believed: bool):
    """A proxy is known by the secret that it sends; with peers both must be right."""
    headers = {"x-forwarded-user": "ann"} | ({} if given is None else {"x-proxy-secret": given})
    proxy = Proxy(peers=peers, secret=SECRET)

    assert (User("ann") if is_believed else None) == proxy.identify(Credentials(headers, peer=peer))
    assert SECRET not in repr(proxy)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"peers": ["proxy"]}, "'proxy' is not an IP address"),
        ({"peers": ["10.0.0.1/8"]}, "'10.0.0.1/8' is not an IP address or a network"),
        ({}, "give peers=, the addresses of the proxies, or secret="),
        ({"secret": "short"}, "fewer than 16 characters"),
    ],
)
def test_proxies_that_anybody_could_be_are_refused(given: dict[str, Any], message: str):
    """Host names as proxies are refused, because they could be changed by others; so are secrets to be guessed."""
    with pytest.raises(ConfigurationError, match=message):
        Proxy(**given)


def test_without_authentication_all_may_operate():
    """The user of a dashboard without authentication has all rights."""
    assert User("local", Role.OPERATE) == NoAuth().identify(Credentials({}))
