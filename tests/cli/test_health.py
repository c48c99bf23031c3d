"""Health probes of workers that are processes: over HTTP, by a file, and to systemd."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.cli import health as health_command
from redrive.clock import SystemClock
from tests import postgres
from tests.proxy import Proxy

CLOCK = SystemClock()
CHECKOUT = Path(__file__).parents[2]

PROBED = '''
import os, time
from pathlib import Path
from redrive import App

url = os.environ.get("PROBED_URL", "sqlite:///probed.db?synchronous=normal")
app = App(url, heartbeat_every="100ms", lease_for="2s")

@app.task
async def block() -> None:
    """Block the event loop of the worker."""
    Path("blocked").touch()
    time.sleep(60)

@app.task
def hold() -> None:
    """Run until there is a file."""
    Path("held").touch()
    while not Path("go").exists():
        time.sleep(0.01)
'''

READY = {"loop", "store", "schema", "registered", "lease", "serving"}


def wait(condition: Callable[[], Any], seconds: float = 90) -> Any:
    """Wait until a condition holds, and return its value; ask less often the longer the question takes."""
    end = CLOCK.monotonic() + seconds
    while True:
        began = CLOCK.monotonic()
        if found := condition():
            return found
        now = CLOCK.monotonic()
        assert now < end, "the condition has not come about"
        CLOCK.sleep(0.02 + 5 * (now - began))


def ask(url: str, probe: str, *, method: str = "GET") -> tuple[int, dict[str, Any]]:
    """Send a probe, and return the status and the document."""
    response = httpx.request(method, f"{url}/{probe}", timeout=10, trust_env=False)
    return response.status_code, json.loads(response.content or b"{}")


def outage(checks: dict[str, bool]) -> dict[str, bool] | None:
    """Return the checks if both that depend on the database have failed."""
    return None if checks["store"] or checks["lease"] else checks


class Probed:
    """A worker process with probes."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        self.log = folder / "worker.log"
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), **variables}
        command = [sys.executable, "-m", "redrive", "worker", "probed:app", "--worker-file", "beat.json", *words]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=log)

    @property
    def url(self) -> str:
        """The address of its probes, from its log."""
        return wait(lambda: re.search(r"answered at (http://\S+):", self.log.read_text())).group(1)

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Write an App with tasks that block, in the current folder."""
    (tmp_path / "probed.py").write_text(PROBED)
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///probed.db?synchronous=normal")
    yield app
    app.close()


@pytest.fixture
def start(app: App, tmp_path: Path) -> Iterator[Callable[..., Probed]]:
    """Start workers, and kill them at the end."""
    with contextlib.ExitStack() as stack:

        def run(*words: str, **variables: str) -> Probed:
            probed = Probed(tmp_path, *words, **variables)
            stack.callback(probed.end)
            return probed

        yield run


@pytest.mark.acceptance
def test_a_worker_answers_probes_and_drains(app: App, start: Callable[..., Probed], tmp_path: Path, redrive):
    """Workers are live from their start to their end; they are ready in between, until it is asked to stop."""
    worker = start("--health", ":0")
    url = worker.url
    wait(lambda: ask(url, "readyz")[0] == 200)
    ready = ask(url, "readyz")[1]
    app.named("hold").enqueue()
    wait((tmp_path / "held").exists)
    worker.process.send_signal(signal.SIGTERM)
    wait(lambda: ask(url, "readyz")[0] == 503)
    draining = ask(url, "readyz")[1]
    states = ask(url, "livez"), ask(url, "startupz")
    read = ["health", "no:app", "--worker-file", "beat.json", "--probe"]
    wait(lambda: redrive(*read, "readyz").err == "failed: serving\n")
    by_file = redrive(*read, "livez")
    (tmp_path / "go").touch()

    assert 0 == worker.process.wait(30)
    assert {"ok": True, "checks": dict.fromkeys(READY, True)} == ready
    assert {"ok": False, "checks": {**dict.fromkeys(READY, True), "serving": False}} == draining
    assert [(200, {"loop": True}), (200, {"registered": True})] == [(status, each["checks"]) for status, each in states]
    assert (0, "ok\n") == (by_file.status, by_file.out)
    assert "succeeded" == app.job(1).state
    assert not (tmp_path / "beat.json").exists()


@pytest.mark.acceptance
@pytest.mark.slow
def test_a_blocked_event_loop_is_not_live(app: App, start: Callable[..., Probed], tmp_path: Path, redrive):
    """Handlers that block the loop for more than 10 seconds fail liveness, over HTTP and in the file."""
    worker = start("--health", "127.0.0.1:0")
    url = worker.url
    wait(lambda: ask(url, "readyz")[0] == 200)
    app.named("block").enqueue()
    wait((tmp_path / "blocked").exists)
    early = ask(url, "livez")
    began = CLOCK.monotonic()
    late = wait(lambda: (found := ask(url, "livez"))[0] == 503 and found)

    assert (200, (503, {"ok": False, "checks": {"loop": False}})) == (early[0], late)
    assert 8 < CLOCK.monotonic() - began < 15
    assert "failed: loop\n" == redrive("health", "no:app", "--worker-file", "beat.json").err


@pytest.mark.acceptance
@pytest.mark.slow
def test_a_worker_without_its_database_is_live_and_not_ready(start: Callable[..., Probed]):
    """Outages of the database fail readiness and never liveness; readiness returns with the database."""
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as proxy:
        database = f"postgresql://postgres@{proxy.host}:{proxy.port}/postgres?schema={postgres.fresh()}"
        url = start("--health", ":0", PROBED_URL=database).url
        wait(lambda: ask(url, "readyz")[0] == 200)
        proxy.refuse()
        proxy.cut()
        down = wait(lambda: outage(ask(url, "readyz")[1]["checks"]))
        live = ask(url, "livez")
        proxy.accept()
        wait(lambda: ask(url, "readyz")[0] == 200)

    expected = {"loop": True, "store": False, "schema": False, "registered": True, "lease": False, "serving": True}
    assert expected == down
    assert 200 == live[0]


@pytest.mark.acceptance
def test_systemd_is_notified(app: App, start: Callable[..., Probed], tmp_path: Path):
    """The worker sends READY=1 when it is registered, WATCHDOG=1 from its loop, and STOPPING=1 when it drains."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        worker = start(NOTIFY_SOCKET=address, WATCHDOG_USEC="200000")
        states = []
        while "READY=1" not in states:
            states.append(manager.recv(100).decode())
        registered = [each.name for each in app.workers.select()]
        seen = [manager.recv(100).decode() for _ in range(3)]
        worker.process.send_signal(signal.SIGTERM)
        while states[-1] != "STOPPING=1":
            states.append(manager.recv(100).decode())

    assert 0 == worker.process.wait(30)
    assert 1 == len(registered)
    assert ["WATCHDOG=1"] * 3 == seen
    assert {"READY=1", "WATCHDOG=1", "STOPPING=1"} == set(states)


@pytest.mark.acceptance
def test_a_dashboard_notifies_systemd_and_answers_probes(app: App, tmp_path: Path):
    """`redrive web` sends READY=1 when it listens and STOPPING=1 when it is asked to stop; probes need no login."""
    app.open()
    address, users = str(tmp_path / "notify"), tmp_path / "users.toml"
    users.write_text(f'[ann]\nrole = "read"\ntoken = "{"0" * 64}"\n')
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), "NOTIFY_SOCKET": address}
    command = [sys.executable, "-m", "redrive", "web", "probed:app", "--port", "0", "--users", str(users)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as served:
            try:
                ready = manager.recv(100)
                url = re.search(r"(http://\S+)/;", served.stdout.readline()).group(1)
                answers = [ask(url, probe)[0] for probe in ("livez", "readyz", "startupz")]
                page = httpx.get(f"{url}/jobs", trust_env=False)
                served.send_signal(signal.SIGTERM)
                stopping = manager.recv(100)
            finally:
                served.terminate()

    assert (b"READY=1", b"STOPPING=1") == (ready, stopping)
    assert [200, 200, 200] == answers
    assert 303 == page.status_code


@pytest.mark.realtime
@pytest.mark.acceptance
def test_a_file_that_cannot_be_replaced_is_logged_once(start: Callable[..., Probed], tmp_path: Path):
    """Workers go on without their file, with one line in the log, and write it when that is possible again."""
    (tmp_path / "beats").mkdir()
    worker = start("--worker-file", "beats/beat.json")
    beat = tmp_path / "beats" / "beat.json"
    wait(lambda: beat.exists() and "checks" in json.loads(beat.read_text()))
    (tmp_path / "beats").rename(tmp_path / "away")
    wait(lambda: "cannot be written" in worker.log.read_text())
    CLOCK.sleep(2.5)
    (tmp_path / "away" / "beat.json").unlink()
    (tmp_path / "away").rename(tmp_path / "beats")
    wait(beat.exists)

    assert worker.process.poll() is None
    assert 1 == worker.log.read_text().count("cannot be written")


@pytest.mark.acceptance
def test_a_worker_without_probes_imports_none(app: App, start: Callable[..., Probed], tmp_path: Path):
    """The modules of probes are not loaded, and no thread is started, by a worker that needs none."""
    code = (
        "import sys; sys.argv = ['redrive', 'worker', 'probed:app', '--until-empty']\n"
        "from redrive.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, *sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    environment.pop("NOTIFY_SOCKET", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    status, *modules = done.stdout.split()

    assert "0" == status
    assert not {"redrive.runtime.probes", "redrive.runtime.health", "redrive.runtime.systemd"} & set(modules)


def test_the_probe_of_a_file_imports_neither_the_app_nor_the_runtime(tmp_path: Path):
    """An exec probe runs every few seconds, so it loads neither the App, nor msgspec's stores, nor asyncio."""
    (tmp_path / "beat.json").write_text(json.dumps({"ticked_at": SystemClock.monotonic(), "stale_after": 1000.0}))
    code = (
        "import sys; sys.argv = ['redrive', 'health', 'no:app', '--worker-file', 'beat.json']\n"
        "from redrive.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, *sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    word, status, *modules = run.stdout.split()

    assert ("ok", "0") == (word, status)
    assert not {"asyncio", "sqlite3", "redrive.app.app", "redrive.runtime", "redrive.stores.store"} & set(modules)


FRESH = {"stale_after": 10.0, "checks": {"readyz": {"loop": True, "store": False}, "startupz": {"registered": True}}}


@pytest.mark.parametrize(
    ("age", "probe", "printed"),
    [
        (1.0, "livez", "ok"),
        (1.0, "startupz", "ok"),
        (1.0, "readyz", "failed: store"),
        (11.0, "livez", "failed: loop"),
        (11.0, "readyz", "failed: loop, store"),
        (-5.0, "livez", "failed: loop"),
    ],
)
def test_files_answer_probes(redrive, tmp_path: Path, age: float, probe: str, printed: str):
    """Files that are old, or from before the last boot, fail each probe; otherwise their checks decide."""
    path = tmp_path / "beat.json"
    path.write_text(json.dumps({**FRESH, "ticked_at": SystemClock.monotonic() - age}))
    output = redrive("health", "no:app", "--worker-file", str(path), "--probe", probe)

    assert (0 if printed == "ok" else 1, f"{printed}\n") == (output.status, output.out + output.err)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "the worker has not started, or has ended"),
        ("{", "is not a worker file"),
        ("[]", "is not a worker file"),
        ('{"ticked_at": "now", "stale_after": 1}', "is not a worker file"),
    ],
)
def test_files_that_are_none_fail(redrive, tmp_path: Path, content: str | None, why: str):
    """Exit with 1 and one line, for a file that is absent or has other content."""
    path = tmp_path / "beat.json"
    if content is not None:
        path.write_text(content)
    output = redrive("health", "no:app", "--worker-file", str(path))

    assert (1, True) == (output.status, why in output.err)


def test_a_worker_that_starts_is_live_and_has_not_started(redrive, tmp_path: Path):
    """The first file of a worker, before it has any checks, answers liveness only."""
    path = tmp_path / "beat.json"
    path.write_text(json.dumps({"ticked_at": SystemClock.monotonic(), "stale_after": 10.0}))
    live, started = (
        redrive("health", "no:app", "--worker-file", str(path), "--probe", probe) for probe in ("livez", "startupz")
    )

    assert (0, 1, "failed: the worker has not started\n") == (live.status, started.status, started.err)


def test_without_a_file_the_database_is_checked(redrive, shop: App):
    """Exit with 1 where the database does not exist, and with 0 where it can be used; nothing is created."""
    before = redrive("health", "shop:app")
    assert not Path("shop.db").exists()
    shop.open()
    after = redrive("health", "shop:app")

    assert (1, "failed: store, schema\n") == (before.status, before.err)
    assert (0, "ok\n") == (after.status, after.out)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--health", "8080x"), "is not an address for probes: give HOST:PORT"),
        (("--health", "127.0.0.1:99999"), "probes cannot be answered at 127.0.0.1:99999"),
        (("--worker-file", "absent/beat.json"), "cannot be written: No such file or directory"),
    ],
)
def test_wrong_addresses_and_files_are_refused(redrive, shop: App, words: tuple[str, ...], why: str):
    """Workers with probes that cannot work do not start: exit status 2 and one line."""
    output = redrive("worker", "shop:app", *words)

    assert (2, True) == (output.status, why in output.err)


@pytest.mark.acceptance
def test_other_requests_are_refused(start: Callable[..., Probed]):
    """Unknown paths are 404, other methods 405, a HEAD has no body, and a request that is none ends the connection."""
    url = start("--health", ":0").url
    paths = ["", "metrics", "livez/x", "x/livez", "livez%2f"]

    assert [404] * len(paths) == [ask(url, path)[0] for path in paths]
    assert (405, {}) == ask(url, "livez", method="POST")
    assert (200, {}) == ask(url, "livez", method="HEAD")
    assert 200 == ask(url, "livez?verbose=1")[0]
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(b"x" * 20_000)
        with contextlib.suppress(ConnectionResetError):
            assert b"" == raw.recv(100)
    assert 200 == ask(url, "livez")[0]


def test_probes_are_the_same_everywhere():
    """The command has the probes that workers answer."""
    from redrive.runtime.health import PROBES

    assert PROBES == tuple(each.value for each in health_command.Probe)


@pytest.mark.usefixtures("app")
def test_a_dashboard_on_a_port_that_is_used_is_one_line(redrive):
    """Name the address and what to do; the exit status is 1."""
    App("sqlite:///probed.db").open().close()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        output = redrive("web", "probed:app", "--port", str(port))

    expected = (
        f"redrive: the dashboard cannot listen at 127.0.0.1:{port}: Address already in use; give another --port "
        "(0 selects a free one) or --host, or end the program that listens there\n"
    )
    assert (1, "", expected) == (output.status, output.out, output.err)
