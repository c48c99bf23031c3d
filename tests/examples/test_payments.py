"""The payments example, as its README has it: in virtual time, and with workers that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from redrive.testing import drain, using_app

PAYMENTS = Path(__file__).parents[2] / "examples" / "payments"

PATIENCE = 90
"""Seconds after which a waiting test fails."""


@pytest.fixture
def payments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the module, with a ledger and a database in a folder of the test."""
    monkeypatch.syspath_prepend(str(PAYMENTS))
    monkeypatch.setenv("PAYMENTS_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("PAYMENTS_URL", f"sqlite:///{tmp_path}/payments.db")
    import payments

    yield payments
    payments.app.close()
    for name in ("payments", "play"):
        sys.modules.pop(name, None)


@pytest.fixture
def play(payments: ModuleType) -> ModuleType:
    """Return the module that plays."""
    import play

    return play


WAYS = {
    "invoice-1": "completed (completed), by created -> paid -> completed",
    "invoice-2": "completed (completed), by created -> paid -> completed",
    "invoice-3": "review (completed), by created -> paid -> completed -> review",
    "invoice-4": "expired (completed), by created -> expired",
}


def test_each_payment_ends_where_it_should(payments: ModuleType, play: ModuleType):
    """Payments are completed, reviewed or expired, and booked once, whatever comes twice."""
    with using_app(payments.app):
        play.begin(4)
        drain(payments.app, within=0)
        play.pay(play.RECEIPTS)
        play.pay(play.RECEIPTS)
        play.begin(4)
        drain(payments.app)

        assert {key: f"{key}: {way}" for key, way in WAYS.items()} == {
            line.partition(":")[0]: line for line in play.report()
        }
        refusal = "invoice-3: the provider refuses the receipt 'refused-3'"
        assert ([refusal], [refusal], ["invoice-4"]) == tuple(
            payments.lines(kind) for kind in ("mail", "review", "released")
        )
    assert {"invoice-1": 100, "invoice-2": 200} == payments.bookings()


def worker(folder: Path) -> subprocess.Popen[bytes]:
    """Start a worker."""
    command = [sys.executable, "-m", "redrive", "worker", "payments:app"]
    environment = {**os.environ, "PYTHONPATH": f"{PAYMENTS}{os.pathsep}{PAYMENTS.parents[1] / 'src'}"}
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


@pytest.mark.acceptance
@pytest.mark.slow
@pytest.mark.realtime
def test_killed_workers_book_each_payment_once(payments: ModuleType, play: ModuleType, tmp_path: Path):
    """Payments are booked once although their workers are killed while they work."""
    play.begin(20)
    receipts = {number: f"ok-{number}" for number in range(1, 21)}
    play.pay(receipts)
    keys = [f"invoice-{number}" for number in receipts]
    running, kills = worker(tmp_path), 0
    deadline = time.monotonic() + PATIENCE  # noqa: TID251 - real processes, real time
    try:
        while not all(payments.payment.get(key).state == "completed" for key in keys):
            assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()  # noqa: TID251 - as above
            time.sleep(0.2 + 0.37 * kills)  # noqa: TID251 - as above
            if kills < 4:
                running.send_signal(signal.SIGKILL)
                running.wait()
                running, kills = worker(tmp_path), kills + 1
    finally:
        running.kill()
        running.wait()

    assert {f"invoice-{number}": 100 * number for number in receipts} == dict(
        sorted(payments.bookings().items(), key=lambda item: int(item[0].partition("-")[2]))
    )
    assert [["created", "paid", "completed"]] * 20 == [
        [move.to_state for move in reversed(payments.payment.get(key).history())] for key in keys
    ]
    assert () == payments.app.database.verify()


def test_the_program_runs_as_the_readme_says(payments: ModuleType, tmp_path: Path):
    """Playing the program prints a line for each payment and the booked sums."""
    running = worker(tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, str(PAYMENTS / "play.py")],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PAYMENTS.parents[1] / "src")},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait()

    assert "invoice-3: review (completed), by created -> paid -> completed -> review" in done.stdout
    assert "booked: {'invoice-1': 100, 'invoice-2': 200}" in done.stdout
