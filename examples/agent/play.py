"""Starts a conversation, kills the worker with SIGKILL between two calls of tools, and starts another one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from support import LEDGER, app, support

COMMAND = [sys.executable, "-m", "redrive", "worker", "support:app"]


def worker() -> subprocess.Popen[bytes]:
    """Start a worker."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(COMMAND, env={**os.environ, "PYTHONPATH": path})  # noqa: S603 - its own command


def main(seconds: float = 60) -> int:
    """Play, and print what was done and what is recorded."""
    LEDGER.unlink(missing_ok=True)
    run = support.start("ann@example.org", "Half of it was broken: order tea-7.")
    running = worker()
    until = time.monotonic() + seconds
    while not any("look_up" in step.name for step in run.timeline()) and time.monotonic() < until:
        time.sleep(0.05)
    running.kill()
    running.wait()
    print("the worker is killed after the first tool")
    running = worker()
    try:
        print(run.result(seconds))
    finally:
        running.terminate()
        running.wait()
    print(LEDGER.read_text(), end="")
    for step in run.timeline():
        print(f"{step.name}: {step.outcome}")
    app.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
