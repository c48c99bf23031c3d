"""A server that loads the app first and forks its workers then: each of them enqueues."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App
from tests import postgres
from tests.acceptance.processes import CHECKOUT, PATIENCE

pytest.importorskip("fcntl", reason="gunicorn does not run on this system")

WORKERS = 2

SITE = """
import os
import threading
from pathlib import Path

from redrive import App

app = App((Path(__file__).parent / "url").read_text())


@app.task
def send(number: int) -> None:
    pass


app.open()
stop = threading.Event()


def busy():
    while not stop.wait(0.001):
        send.enqueue(0)


def application(environ, start_response):
    job = send.enqueue(1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {job.id}".encode()]


threading.Thread(target=busy, daemon=True).start()
"""


@contextlib.contextmanager
def serving(folder: Path, url: str) -> Iterator[None]:
    """Run gunicorn with ``--preload``, on a socket in a folder."""
    (folder / "url").write_text(url)
    (folder / "site_of_test.py").write_text(SITE)
    command = [sys.executable, "-m", "gunicorn", "--preload", f"--workers={WORKERS}", f"--bind=unix:{folder}/socket"]
    command += ["--no-control-socket", "site_of_test:application"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(CHECKOUT / "src"), str(folder)])}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            server.terminate()
            server.wait(PATIENCE)


def ask(folder: Path) -> str | None:
    """Send a request; return the body, or None if the server does not listen yet."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"{folder}/socket")
        except OSError:
            return None
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    assert " 200 " in head, (folder / "log").read_text()
    return body


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_workers_of_gunicorn_enqueue_after_a_preload(database: str):
    """Each worker that was forked from a busy parent enqueues, and every job that was acknowledged is there once."""
    with tempfile.TemporaryDirectory(prefix="redrive") as name:  # the path of a socket is short
        folder = Path(name)
        url = f"sqlite:///{folder}/jobs.db?busy_timeout=2s" if database == "sqlite" else postgres.url()
        answers: list[str] = []

        def all_have_answered() -> bool:
            """Ask once more."""
            if answer := ask(folder):
                answers.append(answer)
            return WORKERS == len({each.split()[0] for each in answers})

        with serving(folder, url):
            until = time.monotonic() + PATIENCE
            while not all_have_answered():
                assert time.monotonic() < until, f"{answers}: {(folder / 'log').read_text()}"
                time.sleep(0.005)
        numbers = [int(each.split()[1]) for each in answers]
        with contextlib.closing(App(url)) as app:
            found = [app.job(number).refresh().id for number in numbers]

    assert len(set(numbers)) == len(answers)
    assert numbers == found


def test_an_app_loads_its_loggers_at_once():
    """Loggers are imported with an app: a child that is forked during a later import of a thread could never log."""
    code = "import sys, redrive; redrive.App; assert 'redrive.observe.logs' in sys.modules"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
