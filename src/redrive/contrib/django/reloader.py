"""``python -m redrive.contrib.django.reloader worker ...``: the command line of redrive, until standard input ends.

For `manage.py redrive worker --reload`. Django's reloader is killed by its parent without a word, and nobody would be
left to end the worker; but the pipe between the two is closed by the system, whatever has happened.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

__all__: list[str] = []


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module("redrive", run_name="__main__", alter_sys=True)
