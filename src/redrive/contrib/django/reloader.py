"""The command line of redrive until standard input ends: ``python -m redrive.contrib.django.reloader worker ...``.

`manage.py redrive worker --reload` starts it. Django's reloader may be killed without notice, and could not stop the
worker then; but the operating system closes the pipe between the two in any case.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module("redrive", run_name="__main__", alter_sys=True)
