"""The shop on FastAPI, as its README has it: a real server, killed for real."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

SHOP = Path(__file__).parents[2] / "examples" / "fastapi_shop"

PATIENCE = 60
"""Seconds after which a waiting test fails."""


class ShopServer:
    """A server on a port of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", "uvicorn", "shop:app", "--host", "127.0.0.1", "--port", "0"]
        with self.log.open("wb") as log:
            environment = {**os.environ, "SHOP_FOLDER": str(folder)}
            self.process = subprocess.Popen(command, cwd=SHOP, env=environment, stdout=log, stderr=log)
        until(lambda: self._address() is not None, self)
        self.client = httpx.Client(base_url=f"http://{self._address()}", timeout=PATIENCE)

    def _address(self) -> str | None:
        found = re.search(r"running on http://(\S+)", self.log.read_text())
        return None if found is None else found[1]

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and wait for the end."""
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def until(holds, server: ShopServer) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE  # noqa: TID251 - real processes, real time
    while not holds():
        if time.monotonic() > deadline or server.process.poll() is not None:  # noqa: TID251 - as above
            raise AssertionError(f"waited in vain; the server logged\n{server.log.read_text()}")
        time.sleep(0.02)  # noqa: TID251 - as above


@pytest.fixture
def start(tmp_path):
    """Start servers on one folder, and end what is left of them."""
    started: list[ShopServer] = []

    def start(name: str) -> ShopServer:
        started.append(ShopServer(tmp_path, name))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.mark.acceptance
@pytest.mark.slow
def test_a_killed_server_loses_no_job(tmp_path, start):
    """Kill a server while it runs a job of a request that it has answered: the next server finishes the job, once.

    The next one is then stopped in order, with a running job that does not end, and gives it back."""
    provider = tmp_path / "provider"
    provider.mkdir()
    (provider / "slow").touch()
    asked = provider / "asked"

    first = start("first")
    answer = first.client.post("/orders", json={"cents": 1200})
    until(asked.exists, first)
    first.end(signal.SIGKILL)
    (provider / "slow").unlink()
    second = start("second")
    until(lambda: second.client.get("/orders/1").json()["job"] == "succeeded", second)

    assert (202, {"order": 1, "job": 1}) == (answer.status_code, answer.json())
    assert {"order": 1, "cents": 1200, "payments": 1, "job": "succeeded"} == second.client.get("/orders/1").json()
    lines = asked.read_text().splitlines()
    assert (2, 1) == (len(lines), len(set(lines)))
    assert 404 == second.client.get("/orders/2").status_code
    assert 422 == second.client.post("/orders", json={"cents": 0}).status_code
    assert second.end(signal.SIGTERM) in {0, -signal.SIGTERM}  # uvicorn raises the signal again when it is done
