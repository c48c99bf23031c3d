"""Ways to authenticate."""

from __future__ import annotations

import base64

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


def test_sessions_end_with_a_changed_account():
    """Each change of an account changes the key of all sessions; its order does not."""
    other = Users({"ann": Account(Role.READ, password=PASSWORD), "ci": USERS.accounts["ci"]})
    turned = Users(dict(reversed(USERS.accounts.items())))

    assert (False, True) == (USERS.key == other.key, USERS.key == turned.key)


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


def test_proxies_are_addresses():
    """Host names as proxies are refused, because they could be changed by others."""
    with pytest.raises(ConfigurationError, match="'proxy' is not an IP address"):
        Proxy(peers=["proxy"])


def test_without_authentication_all_may_operate():
    """The user of a dashboard without authentication has all rights."""
    assert User("local", Role.OPERATE) == NoAuth().identify(Credentials({}))
