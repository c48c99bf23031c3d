"""The parts of the demo that need no processes."""

from __future__ import annotations

import signal

import pytest

from redrive.cli.demo import Demo, program_folder


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
