"""The dashboard behind real proxies, with the configurations of the documentation and of the examples."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

import redrive
from redrive.clock import SystemClock
from redrive.web import hash_password
from redrive.web.streams import MOST
from tests.debian import needed, program

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/how-to/mount-the-dashboard.md"
DEPLOY = ROOT / "examples/deploy"
HOST = "ops.example.com"
PATIENCE = 60

USERS = "".join(
    f'[{name}]\nrole = "operate"\npassword = "{hash_password(password, salt=bytes(16))}"\n'
    for name, password in {"ann": "open sesame", "bob": "let me in"}.items()
)


class Place(NamedTuple):
    """The files and the ports of a test."""

    folder: Path
    port: int
    upstream: int


class Behind(NamedTuple):
    """A dashboard behind a proxy."""

    scheme: str
    port: int
    prefix: str

    def send(self, method: str, path: str, *, source: str = "127.0.0.1", **given: object) -> httpx.Response:
        """Send a request from an address of this machine, as a browser that sends no Sec-Fetch-Site."""
        own = f"{HOST}:{self.port}"
        headers = {"Host": own, "Origin": f"{self.scheme}://{own}", **given.pop("headers", {})}  # type: ignore[dict-item]
        with self.client(source) as client:
            request = client.build_request(method, f"{self.prefix}{path}", headers=headers, **given)  # type: ignore[arg-type]
            request.extensions["sni_hostname"] = HOST
            return client.send(request)

    def client(self, source: str = "127.0.0.1") -> httpx.Client:
        """Return a client with an address of this machine."""
        transport = httpx.HTTPTransport(local_address=source, verify=False)
        return httpx.Client(transport=transport, base_url=f"{self.scheme}://127.0.0.1:{self.port}", timeout=PATIENCE)

    def login(self, name: str, password: str, **given: object) -> httpx.Response:
        """Send the form of the login page."""
        return self.send("POST", "/login", data={"name": name, "password": password}, **given)  # type: ignore[arg-type]


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _block(first: str) -> str:
    """Return a block of the guide that begins with a line."""
    return next(
        each
        for each in re.findall(r"^```text\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        if each.startswith(first)
    )


def _nginx(place: Place, server: str) -> list[str]:
    """Write the configuration of nginx, and return the command."""
    nginx = needed("nginx-light", lambda: program("nginx"))
    text = re.sub(r"\blisten 443\b", f"listen 127.0.0.1:{place.port}", server)
    text = text.replace("127.0.0.1:8765", f"127.0.0.1:{place.upstream}")
    text = re.sub(r"/etc/ssl/\w+/ops\.example\.com\.", f"{place.folder}/", text)
    paths = "".join(f"{each}_temp_path {each};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    conf = f"pid pid; error_log stderr; events {{}} http {{ access_log off; {paths} {text} }}"
    (place.folder / "nginx.conf").write_text(conf)
    return [nginx, "-p", str(place.folder), "-c", "nginx.conf", "-g", "daemon off;"]


def _caddy(place: Place, site: str) -> list[str]:
    """Write the configuration of Caddy, and return the command."""
    caddy = needed("caddy", lambda: program("caddy"))
    text = site.replace("127.0.0.1:8765", f"127.0.0.1:{place.upstream}")
    (place.folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
    return [caddy, "run", "--config", str(place.folder / "Caddyfile"), "--adapter", "caddyfile"]


def _certify(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    names = ["-addext", f"subjectAltName=DNS:{HOST}", "-keyout", folder / "key", "-out", folder / "pem"]
    subprocess.run([*command, *names], check=True, capture_output=True)


def nginx_of_the_example(place: Place) -> list[str]:
    """Return the command of nginx with the configuration of the example."""
    return _nginx(place, (DEPLOY / "nginx.conf").read_text())


def nginx_of_the_guide(place: Place) -> list[str]:
    """Return the command of nginx with the block of the guide."""
    tls = "listen 443 ssl; ssl_certificate /etc/ssl/x/ops.example.com.pem;"
    tls += "ssl_certificate_key /etc/ssl/x/ops.example.com.key;"
    return _nginx(place, f"server {{ {tls} {_block('location')} }}")


def caddy_of_the_example(place: Place) -> list[str]:
    """Return the command of Caddy with the configuration of the example."""
    begin = f"https://{HOST}:{place.port} {{\n\tbind 127.0.0.1\n\ttls {place.folder}/pem {place.folder}/key\n"
    return _caddy(place, (DEPLOY / "Caddyfile").read_text().replace(f"{HOST} {{\n", begin))


def caddy_of_the_guide(place: Place) -> list[str]:
    """Return the command of Caddy with the block of the guide."""
    begin = f"https://{HOST}:{place.port} {{\n\tbind 127.0.0.1\n\ttls {place.folder}/pem {place.folder}/key\n"
    return _caddy(place, f"{begin}{_block('handle_path')}}}\n")


@contextlib.contextmanager
def _running(command: list[str], log: Path, **given: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, **given)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a process listens at a port."""
    for _ in range(PATIENCE * 20):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        assert process.poll() is None, log.read_text()
        SystemClock().sleep(0.05)
    pytest.fail(f"it does not listen: {log.read_text()}")


@pytest.fixture(
    scope="module",
    params=[nginx_of_the_example, nginx_of_the_guide, caddy_of_the_example, caddy_of_the_guide],
    ids=lambda each: each.__name__,
)
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Start a dashboard with users, and a proxy in front of it."""
    folder = tmp_path_factory.mktemp("proxy")
    place = Place(folder, _free(), _free())
    _certify(folder)
    make: Callable[[Place], list[str]] = request.param
    proxy, prefix = make(place), "/ops/redrive" if "guide" in make.__name__ else ""
    (folder / "users.toml").write_text(USERS)
    url = f"sqlite:///{folder}/shop.db"
    (folder / "shop.py").write_text(f"import redrive\n\napp = redrive.App({url!r})\n")
    redrive.App(url).open().close()
    env = {**os.environ, "PYTHONPATH": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    web = [sys.executable, "-m", "redrive", "web", "shop:app", "--port", str(place.upstream), "--users", "users.toml"]
    web += ["--host-name", HOST, "--proxy", "127.0.0.1", *(["--prefix", prefix] if prefix else [])]
    with (
        _running(web, folder / "web.log", env=env, cwd=folder) as dashboard,
        _running(proxy, folder / "proxy.log", env=env, cwd=folder) as server,
    ):
        _await(dashboard, place.upstream, folder / "web.log")
        _await(server, place.port, folder / "proxy.log")
        yield Behind("https", place.port, prefix)


def test_a_login_through_a_proxy_is_one_of_the_browser_s_address(behind: Behind):
    """The address that a client writes into X-Forwarded-For is not counted; other addresses may log in."""
    statuses = [
        behind.login("bob", "wrong", headers={"X-Forwarded-For": f"198.51.100.{number}"}).status_code
        for number in range(6)
    ]

    assert [401, 401, 401, 401, 401, 429] == statuses
    assert 303 == behind.login("ann", "open sesame").status_code
    assert 303 == behind.login("bob", "let me in", source="127.0.0.2").status_code


def test_a_form_behind_a_proxy_has_the_origin_of_the_dashboard(behind: Behind):
    """The scheme and the port that the browser sees reach the dashboard, so that its cookie is for HTTPS only."""
    answer = behind.login("ann", "open sesame", source="127.0.0.3")
    cookie = answer.headers["set-cookie"]

    assert 303 == answer.status_code
    assert "Secure" in cookie
    assert f"Path={behind.prefix or '/'};" in cookie
    assert 403 == behind.send("POST", "/login", headers={"Origin": f"https://{HOST}"}).status_code
    assert 403 == behind.send("POST", "/login", headers={"Origin": f"http://{HOST}:{behind.port}"}).status_code


def test_events_pass_a_proxy_at_once(behind: Behind):
    """The begin of the stream of an open page arrives while the stream is open; closed pages have no streams."""
    cookie = behind.login("ann", "open sesame", source="127.0.0.4").headers["set-cookie"].partition(";")[0]
    for _ in range(MOST):
        assert "retry: 2000\n\n" == _first_event(behind, cookie)

    for _ in range(PATIENCE // 2 * 20):
        if _first_event(behind, cookie):
            return
        SystemClock().sleep(0.05)
    pytest.fail("the streams of closed pages stay open")


def _first_event(behind: Behind, cookie: str) -> str:
    """Open a stream and close it; return nothing if the user has too many."""
    with behind.client() as client:
        headers = {"Host": f"{HOST}:{behind.port}", "Cookie": cookie}
        request = client.build_request("GET", f"{behind.prefix}/live", headers=headers)
        request.extensions["sni_hostname"] = HOST
        answer = client.send(request, stream=True)
        first = next(answer.iter_text()) if answer.status_code == HTTPStatus.OK else ""
        answer.close()
    return first
