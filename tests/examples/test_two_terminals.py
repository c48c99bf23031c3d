"""The page of the tutorial with two terminals, typed in as it is printed: a worker on a file, killed and restarted."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.clock import SystemClock

PAGE = Path(__file__).parents[2] / "docs/tutorial/two-terminals.md"

PATIENCE = 90
"""Seconds after which a waiting test fails; looked at twenty times a second."""


class Terminals:
    """A folder with the file of the page, and the worker of the first terminal."""

    def __init__(self, folder: Path, code: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "payments.py").write_text(code)
        home = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.env = {**os.environ, **home, "COLUMNS": "200"}
        self.env.pop("PYTHONPATH", None)

    def type(self, terminal: str, line: str, printed: str) -> None:
        """Type a line, and wait until all that the page prints below it is printed."""
        if line == "^C":
            assert self.process is not None
            self.process.send_signal(signal.SIGINT)
            self.printed(self.log.read_text, printed)
            assert self.process.wait(PATIENCE) == 0
        elif line.startswith("kill -9 "):
            assert self.process is not None
            assert self.process.poll() is None
            self.process.kill()
            self.process.wait()
        elif line.startswith("touch "):
            (self.folder / line.removeprefix("touch ")).touch()
        elif terminal == "1":
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(_command(line), cwd=self.folder, env=self.env, stdout=log, stderr=log)
            self.printed(self.log.read_text, printed)
        else:
            self.printed(lambda: self._ask(line), printed, tries=1 if "enqueue" in line else PATIENCE)

    def _ask(self, line: str) -> str:
        done = subprocess.run(_command(line), cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def printed(self, ask: Callable[[], str], expected: str, *, tries: int = PATIENCE * 20) -> None:
        """Wait until each of these lines is among those that a call returns."""
        wanted = [_bare(line) for line in expected.splitlines()]
        missing, found = wanted, [""]
        for _ in range(tries):
            found = [_bare(line) for line in ask().splitlines()]
            missing = [line for line in wanted if not any(line in each for each in found)]
            if not missing:
                return
            SystemClock().sleep(0.05)
        pytest.fail(f"the page has {missing}, and there is {found}")


def _command(line: str) -> list[str]:
    program, *words = shlex.split(line)
    assert program == "redrive"
    return [sys.executable, "-m", "redrive", *words, *(["--port", str(_free())] if words[0] == "web" else [])]


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _bare(line: str) -> str:
    """Return a line without what differs each time: numbers, units of times, the names of machines."""
    line = re.sub(r"\(\S+:\d+\)", "(machine)", line)
    line = re.sub(r"sqlite:////\S+/", "sqlite:////", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \S+( UTC)?", "T", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d.]+(ms|s)?\b", "N", line)).strip()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    """Write the file of the page."""
    code = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    made = Terminals(tmp_path, code[1])
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.mark.realtime
@pytest.mark.slow
def test_the_page_is_what_happens(terminals: Terminals):
    """Each command of the page prints what the page says, in its order."""
    fences = re.findall(r"^```(console|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    typed = 0
    for kind, block in fences:
        if kind == "text":
            terminals.printed(terminals.log.read_text, block)
            continue
        for terminal, line, printed in re.findall(r"^([12])\$ (.*)\n((?:(?![12]\$ ).*\n)*)", block, re.MULTILINE):
            terminals.type(terminal, line, printed)
            typed += 1
    assert typed == 10
