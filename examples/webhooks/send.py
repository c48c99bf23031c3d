"""Enqueue the deliveries of a file of events.

::

    python send.py [events.jsonl]

A line that is no event is reported and left out; then the exit status is 1. The good lines are enqueued all the same.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from delivery import app, deliver
from events import read_events

SHOWN = 100  # characters of a broken line, which may have 20,000


def main() -> None:
    """Enqueue one job for each event."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("events.jsonl")
    try:
        events = read_events(path)
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}")
    for line in events.broken:
        text = line.text if len(line.text) <= SHOWN else f"{line.text[:SHOWN]}... ({len(line.text)} characters)"
        # The text may hold escape codes, which a terminal would obey.
        print(f"{path.name}, line {line.number} is not an event ({line.why}): {text!a}", file=sys.stderr)
    with contextlib.closing(app):
        print(f"{len(deliver.enqueue_many(events.good))} events are enqueued")
    sys.exit(1 if events.broken else 0)


if __name__ == "__main__":
    main()
