"""The shop on Django, as its README has it: real processes, killed for real."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import App

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"

PATIENCE = 60
"""Seconds after which a waiting test fails."""


class DjangoShop:
    """The project, with its data in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SHOP_FOLDER": str(folder)}
        self.url = f"sqlite:///{folder}/shop.db"
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "provider").mkdir()

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a command."""
        return [sys.executable, "manage.py", *arguments]

    def manage(self, *arguments: str) -> str:
        """Run a command to its end; return its output."""
        run = subprocess.run(
            self.command(*arguments), cwd=SHOP, env=self.environment, capture_output=True, text=True, check=False
        )
        assert 0 == run.returncode, run.stderr
        return run.stdout

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker."""
        log = (self.folder / f"worker-{len(self.processes)}.log").open("wb")
        running = subprocess.Popen(
            self.command("redrive", "worker"), cwd=SHOP, env=self.environment, stdout=log, stderr=log
        )
        log.close()
        self.processes.append(running)
        return running

    def asked(self) -> list[str]:
        """Return the requests to the provider, in order."""
        ledger = self.folder / "provider" / "asked"
        return ledger.read_text().splitlines() if ledger.exists() else []

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Query the database."""
        connection = sqlite3.connect(self.folder / "shop.db", timeout=PATIENCE)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE  # noqa: TID251 - real processes, real time
        while not holds():
            if time.monotonic() > deadline:  # noqa: TID251 - as above
                logs = "\n".join(each.read_text() for each in self.folder.glob("worker-*.log"))
                raise AssertionError(f"waited for {PATIENCE} s; the workers logged\n{logs}")
            time.sleep(0.02)  # noqa: TID251 - as above

    def close(self) -> None:
        """End what still runs."""
        for each in self.processes:
            if each.poll() is None:
                each.kill()
            each.wait()


@pytest.fixture
def shop(tmp_path):
    """Return a shop with migrated tables."""
    shop = DjangoShop(tmp_path)
    shop.manage("migrate", "--verbosity=0")
    yield shop
    shop.close()


@pytest.mark.acceptance
@pytest.mark.slow
def test_a_worker_that_is_killed_loses_no_order_and_takes_no_money_twice(shop):
    """Kill a worker while the provider holds its call: the next one runs the job again, and there is one payment.

    The second worker is then stopped in order, and ends."""
    (shop.folder / "provider" / "slow").touch()
    assert re.fullmatch(r"order 1, job [0-9a-f]{32}\n", shop.manage("place_order", "1200"))
    first = shop.worker()
    shop.until(lambda: len(shop.asked()) == 1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    (shop.folder / "provider" / "slow").unlink()

    second = shop.worker()
    app = App(shop.url)
    shop.until(lambda: app.jobs.stats().succeeded == 1)
    second.send_signal(signal.SIGTERM)

    assert 0 == second.wait(PATIENCE)
    assert "order 1 is paid for" == app.job(1).result()
    assert [(1, 1200)] == shop.rows("SELECT order_id, cents FROM shop_payment")
    asked = shop.asked()
    assert (2, 1) == (len(asked), len(set(asked)))
    assert () == app.database.verify()
    app.close()


@pytest.mark.acceptance
@pytest.mark.slow
def test_a_command_that_gives_up_exits_with_75(tmp_path):
    """With the provider unreachable, the command makes all its attempts, and exits with 75."""
    shop = DjangoShop(tmp_path)
    (shop.folder / "provider" / "out").touch()

    run = subprocess.run(
        shop.command("fetch_rates"), cwd=SHOP, env=shop.environment, capture_output=True, text=True, check=False
    )

    assert 75 == run.returncode
    assert "gave up after 4 attempts: ConnectionError: the provider is out" in run.stderr
