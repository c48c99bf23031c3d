"""Fixtures: a shop with an App in a folder of its own, and its command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive import App
from redrive.cli import main

SHOP = '''
import os, signal
from redrive import App, CatchRequest, GiveUp

app = App("sqlite:///shop.db?synchronous=normal", heartbeat_every="50ms", lease_for="200ms")

@app.task(retry="5 1h")
def charge(cents: int) -> int:
    """Charge a card."""
    if cents == 13:
        raise ConnectionError("no route [/b] to the bank")
    if cents < 0:
        raise GiveUp("negative [red]amount")
    return cents

@app.task
async def stop() -> None:
    """Stop the worker."""
    os.kill(os.getpid(), signal.SIGTERM)
'''


@dataclass(frozen=True)
class Output:
    """The output of a command, and its exit status."""

    status: int | str | None
    out: str
    err: str


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Create a module ``shop`` with an App in the current folder, and unload it at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "shop.py").write_text(SHOP)
    import shop

    yield shop.app
    shop.app.close()
    del sys.modules["shop"]


@pytest.fixture
def redrive(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Output]:
    """Run a command line as a shell would, in this process."""

    def run(*words: str) -> Output:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["redrive", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Output(left.value.code or 0, out, err)

    return run
