"""The addresses from which requests come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

import redrive
from redrive.errors import ConfigurationError
from redrive.operate.exchange import Refusal
from redrive.web import Account, Credentials, Proxy, Role, User, Users, create_app, hash_password
from redrive.web.peers import Peers, counted
from redrive.web.throttle import LOGINS, Throttle
from tests.web.client import Client
from tests.web.served import served

PROXIES = Peers(["10.0.0.0/8", "::1"], "Users(proxies=)")
ANN = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "ops"}


@pytest.mark.parametrize(
    ("peer", "forwarded", "sender"),
    [
        ("192.0.2.7", ["198.51.100.1"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("::1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, "], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        (None, ["198.51.100.1"], None),
    ],
)
def test_the_sender_is_the_last_address_that_is_no_proxy(peer: str | None, forwarded: list[str], sender: str | None):
    """What stands before the first address that is no proxy are words of the sender, and count for nothing."""
    assert sender == PROXIES.sender(peer, forwarded)


@pytest.mark.parametrize(
    ("address", "name"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8::1", "2001:db8::/64"), (None, ""), ("::ffff:192.0.2.7", "192.0.2.7")],
)
def test_an_address_of_ipv6_counts_as_its_network(address: str | None, name: str):
    """A sender chooses among all addresses of its network."""
    assert name == counted(address)


def test_proxies_of_users_are_addresses():
    """A name of a proxy is refused at once."""
    with pytest.raises(ConfigurationError, match="'nginx' is not an IP address or a network"):
        Users({"ann": Account(token="0" * 64)}, proxies=["nginx"])


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App."""
    found = redrive.App("memory://")
    found.open()
    yield found
    found.close()


def _trusting(application: Any) -> Any:
    """Wrap an application, as uvicorn does for ``forwarded_allow_ips="*"``: it believes everybody."""
    return ProxyHeadersMiddleware(application, "*")


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.9"}, 200),
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.9:4711", "X-Real-IP": "203.0.113.9"}, 200),
        ("10.9.9.9", {"X-Forwarded-For": "10.9.9.9"}, 401),
        ("10.9.9.9", {"X-Forwarded-For": "10.9.9.9:4711"}, 401),
        ("10.9.9.9", {"Forwarded": "for=10.9.9.9", "X-Real-IP": "10.9.9.9"}, 401),
    ],
)
def test_the_peer_is_that_of_the_connection(app: redrive.App, peer: str, headers: dict[str, str], status: int):
    """A proxy is known by the address of its connection, also if the server has replaced that by one of a header."""
    dashboard = create_app(app, auth=Proxy(peers=[peer], operators=["ops"]))
    with served(_trusting(dashboard)) as url:
        assert status == httpx.get(f"{url}/queues", headers=ANN | headers).status_code


@pytest.mark.parametrize(
    "header", [None, "X-Forwarded-For", "X-Real-IP", "X-Azure-ClientIP", "X-Envoy-External-Address"]
)
def test_an_address_that_a_header_may_have_named_is_not_believed(app: redrive.App, header: str | None):
    """Behind middleware that hides the connection the address is not known, whatever headers a request has."""
    outer = FastAPI()

    @outer.middleware("http")
    async def name_client(request: Request, following: Any) -> Any:
        """Take the address from a header, as middleware for many a proxy does."""
        request.scope["client"] = (request.headers.get(header or "", "10.9.9.9"), 0)
        return await following(request)

    outer.mount("/ops", create_app(app, auth=Proxy(peers=["10.9.9.9"])))
    with served(_trusting(outer)) as url:
        headers = ANN if header is None else ANN | {header: "10.9.9.9"}
        answer = httpx.get(f"{url}/ops/api/v1/queues", headers=headers)

    assert 401 == answer.status_code
    assert "has to send a secret" in answer.json()["detail"]


def test_a_resolver_gets_the_peer_of_the_connection(app: redrive.App):
    """A function of the application is not shown an address from a header either."""
    seen = []

    async def resolve(credentials: Credentials) -> User:
        """Note the peer."""
        seen.append(credentials.peer)
        return User("ann")

    with served(_trusting(create_app(app, auth=resolve))) as url:
        httpx.get(f"{url}/queues", headers={"X-Forwarded-For": "10.9.9.9"})

    assert ["127.0.0.1"] == seen


def test_failed_logins_are_counted_by_user_and_address(app: redrive.App):
    """An address that the client writes changes nothing, and another user of the same address may log in."""
    word = hash_password("open sesame", salt=bytes(16))
    accounts = {name: Account(Role.READ, word) for name in ("ann", "bob")}
    dashboard = create_app(app, auth=Users(accounts))
    with served(_trusting(dashboard)) as url, httpx.Client(base_url=url, headers={"Origin": url}) as client:

        def login(name: str, password: str, forwarded: str = "") -> int:
            """Send the form of the login page."""
            headers = {"X-Forwarded-For": forwarded} if forwarded else {}
            return client.post("/login", data={"name": name, "password": password}, headers=headers).status_code

        wrong = [login("ann", "wrong", f"198.51.100.{number}") for number in range(7)]

        assert [401] * 5 + [429] * 2 == wrong
        assert (429, 303) == (login("ann", "open sesame"), login("bob", "open sesame"))
        assert 429 == httpx.get(f"{url}/queues", auth=("ann", "open sesame")).status_code
        assert 200 == httpx.get(f"{url}/queues", auth=("bob", "open sesame")).status_code


def test_a_proxy_that_is_listed_names_the_address(app: redrive.App):
    """Behind a proxy that is listed, a stranger does not keep a user out who has another address."""
    users = Users({"ann": Account(Role.READ, hash_password("open sesame"))}, proxies=["127.0.0.1"])
    with served(create_app(app, auth=users)) as url, httpx.Client(base_url=url, headers={"Origin": url}) as client:
        form = {"name": "ann", "password": "wrong"}
        headers = {"X-Forwarded-For": "203.0.113.1, 198.51.100.1"}
        wrong = [client.post("/login", data=form, headers=headers).status_code for _ in range(6)]
        form["password"] = "open sesame"
        right = client.post("/login", data=form, headers={"X-Forwarded-For": "198.51.100.2"})

    assert [401] * 5 + [429] == wrong
    assert 303 == right.status_code


@pytest.mark.parametrize("kind", ["form", "basic"])
@pytest.mark.parametrize("password", ["wrong", "open sesame"])
def test_logins_at_once_are_counted_one_by_one(app: redrive.App, kind: str, password: str):
    """Wrong passwords that arrive together are as limited as others, and right ones are not refused."""
    users = Users({"ann": Account(Role.READ, hash_password("open sesame"))})
    transport = httpx.ASGITransport(create_app(app, auth=users))

    async def login(client: httpx.AsyncClient) -> int:
        """Log in once."""
        if kind == "basic":
            return (await client.get("/api/v1/queues", auth=("ann", password))).status_code
        form = {"name": "ann", "password": password}
        return (await client.post("/login", data=form, headers={"Origin": "http://localhost"})).status_code

    async def logins() -> list[int]:
        """Log in often at once."""
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return sorted(await asyncio.gather(*(login(client) for _ in range(12))))

    right = [200 if kind == "basic" else 303] * 12
    assert ([401] * 5 + [429] * 7 if password == "wrong" else right) == asyncio.run(logins())


def test_a_login_that_is_cancelled_counts_as_failed():
    """A request that ends while its password is checked evades no limit, nor does one that ends while it waits."""
    throttle, entered, go = Throttle(), threading.Semaphore(0), threading.Event()

    def check() -> User:
        """Check a password for long."""
        entered.release()
        go.wait()
        return User("ann")

    async def cancelled() -> User | None:
        """Cancel all logins but two: one that is being checked, and one that waits for it."""
        checked = [asyncio.create_task(throttle.login("ann", "a", check)) for _ in range(LOGINS)]
        await asyncio.to_thread(lambda: [entered.acquire() for _ in checked])
        waiting = [asyncio.create_task(throttle.login("ann", "a", check)) for _ in range(2)]
        await asyncio.wait(waiting, timeout=0)
        for each in (waiting[0], *checked[1:]):
            each.cancel()
        await asyncio.wait([waiting[0], *checked[1:]])
        assert not waiting[1].done()
        go.set()
        return await waiting[1]

    assert User("ann") == asyncio.run(cancelled())
    throttle.check("ann", "a")
    throttle.failed("ann", "a")
    with pytest.raises(Refusal):
        throttle.check("ann", "a")


def test_one_address_has_a_limit_for_all_names(app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """Trials of many names from one address end, and their checks of passwords with them."""
    monkeypatch.setattr("redrive.web.throttle.LOGINS_OF_ADDRESS", 3)
    client = Client(create_app(app, auth=Users({"ann": Account(password=hash_password("x"))})))
    form, origin = {"password": "wrong"}, {"Origin": "http://localhost"}
    statuses = [client.post("/login", data=form | {"name": each}, headers=origin).status_code for each in "abcd"]

    assert [401, 401, 401, 429] == statuses
