"""The events that ship, and how a file of events is read."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from events import Event, read_events
from make_events import make_events

FILE = Path(__file__).parents[2] / "examples" / "webhooks" / "events.jsonl"
LINES = FILE.read_bytes().split(b"\n")[:-1]
GOOD = b'{"id":"a","type":"t","created_at":"2026-01-01T00:00:00Z","data":{}}'


def test_the_file_is_what_its_script_makes():
    """events.jsonl can be made again, byte for byte."""
    assert LINES == [msgspec.json.encode(event) for event in make_events(300, 1)]


def test_every_line_has_between_half_a_kilobyte_and_twenty():
    """Lines have 0.5 KB to 20 KB, and their sizes spread."""
    sizes = sorted(map(len, LINES))
    assert sizes[0] >= 512
    assert sizes[-1] <= 20_480
    assert sizes[0] < 1_000
    assert sizes[-1] > 15_000


def test_the_file_has_three_hundred_events_with_distinct_ids():
    """300 lines, 300 readable events, 300 ids."""
    events = read_events(FILE)
    assert (300, ()) == (len(events.good), events.broken)
    assert 300 == len({event.id for event in events.good})


def test_every_kind_occurs_often():
    """Each of the five kinds of events makes up a tenth of the file at least."""
    kinds = Counter(event.type for event in read_events(FILE).good)
    assert {"push", "payment.settled", "order.placed", "chat.message", "document.changed"} == set(kinds)
    assert min(kinds.values()) >= 30


def depth(value):
    """Count the containers around the innermost value."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, children), default=0) if isinstance(value, dict | list) else 0


def test_events_nest_deeply():
    """At least one event has more than 60 nested containers."""
    assert max(depth(json.loads(line)) for line in LINES) > 60


@pytest.mark.parametrize(
    "sample", ["日", "م", "ש", "д", "λ", "न", "ธ", "안", "👩🏽‍🚀", "👨‍👩‍👧‍👦", "🇯🇵", "e\u0301", "\u2028"], ids=ascii
)
def test_the_file_contains_many_scripts(sample):
    """CJK, right-to-left scripts, emoji of several code points, combining marks and a line separator all occur."""
    assert sample in FILE.read_text(encoding="utf-8")


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path):
    """U+2028 and U+0085 are characters of a JSON string, not ends of a line."""
    event = Event("a", "t", datetime(2026, 1, 1, tzinfo=UTC), {"x": "\u2028\x85"})
    path = tmp_path / "events.jsonl"
    path.write_bytes(msgspec.json.encode(event) + b"\n")
    assert (event,) == read_events(path).good


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"id": "b",', "Input data was truncated"),
        (b"hello", "malformed"),
        (b"[]", "Expected `object`"),
        (b'{"id":"b","type":"t","created_at":"yesterday","data":{}}', "created_at"),
        (b'{"id":"b","type":"t","created_at":"2026-01-01T00:00:00Z"}', "missing required field `data`"),
        (b'{"id":"\xff","type":"t"}', "utf-8"),
        (b'{"id":"b","type":"t","created_at":"2026-01-01T00:00:00Z","data":' + b'{"a":' * 100_000, "recursion"),
    ],
    ids=["cut", "text", "array", "date", "field", "bytes", "depth"],
)
def test_a_broken_line_is_reported_with_its_number_and_costs_no_other(tmp_path, line, why):
    """Whatever is wrong with a line, it is reported by number, text and reason, and its neighbours are read."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(GOOD + b"\n\n" + line + b"\n" + GOOD)
    events = read_events(path)
    assert ["a", "a"] == [event.id for event in events.good]
    (broken,) = events.broken
    assert (3, line.decode(errors="replace")) == (broken.number, broken.text)
    assert why in broken.why
