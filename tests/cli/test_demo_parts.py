"""The parts of the demo that need no processes."""

from __future__ import annotations

import signal

import pytest

from redrive.cli.demo import Demo, _show_dashboard, program_folder


def test_the_example_is_found():
    """Find the folder with the program and the events of the demo."""
    assert {"delivery.py", "receiver.py", "events.jsonl"} <= {path.name for path in program_folder().iterdir()}


def test_the_first_signal_drains_and_the_second_stops():
    """Once sets a flag, twice raises KeyboardInterrupt."""
    demo = object.__new__(Demo)
    demo.interrupted = False
    demo._interrupt(signal.SIGINT, None)
    interrupted = demo.interrupted

    assert interrupted
    with pytest.raises(KeyboardInterrupt):
        demo._interrupt(signal.SIGINT, None)


def test_the_last_line_has_the_address_of_the_dashboard(capsys: pytest.CaptureFixture[str]):
    """The command that serves what has happened names the database, unless it is the usual one."""
    _show_dashboard("my demo.db", serves=False)
    _show_dashboard("redrive-demo/webhooks.db", serves=False)

    first, second = capsys.readouterr().out.splitlines()
    assert "see what happened at http://127.0.0.1:8765/ with: redrive demo --events 0 --open --db 'my demo.db'" == first
    assert second.endswith("--open")
