"""Error groups: what belongs to a fingerprint, and what differs between failures of one group."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive.engine.error_groups import frame, frames, place, seen, title
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Succeeded
from tests.engine.helpers import NOW, claim, failure, settled

TRACEBACK = """Traceback (most recent call last):
  File "/srv/release-7/payments/jobs.py", line 12, in charge
    post(order)
  File "/srv/release-7/payments/client.py", line 30, in post
    httpx.get(url)
  File "/srv/venv/lib/python3.11/site-packages/httpx/_client.py", line 7, in get
    raise ReadTimeout("timed out")
httpx.ReadTimeout: timed out"""

CHAIN = f"""{TRACEBACK}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "C:\\\\app\\\\shop\\\\jobs.py", line 4, in pay
    raise Failed
shop.Failed"""


def fingerprint(message: str = "boom", **changes: Any) -> str:
    """Return the fingerprint of a failure of an ordinary job."""
    parts: dict[str, Any] = {"reason": "ERROR", "error_type": "builtins.ValueError", "traceback": TRACEBACK} | changes
    of = parts.pop("claim", claim(payload=b'{"who":"Annabel Lee","order":7}'))
    return seen(of, NOW, error=message, **parts).fingerprint


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("order 17 of 23,000.5 is late", "order <n> of <n> is late"),
        ("no card of Annabel Lee", "no card of <argument>"),
        ("no key 'amount' in \"the order\"", "no key <text> in <text>"),
        ("it's the customer's, isn't it", "it's the customer's, isn't it"),
        ("GET https://api.example/v1?x=1 failed", "GET <url> failed"),
        ("mail to ann.lee+x@example.org bounced", "mail to <mail> bounced"),
        ("job 550e8400-e29b-41d4-a716-446655440000", "job <id>"),
        ("at 0x7f3a and deadbeef12 but not defaced", "at <hex> and <hex> but not defaced"),
        ("closed at 2026-11-23T10:00:01.5Z", "closed at <time>"),
        ("cannot open /var/lib/app/7.txt and/or more", "cannot open <path> and/or more"),
        ("\n first line\nsecond line", "first line"),
        ("", ""),
        ("x" * 900, "x" * 200),
    ],
)
def test_a_title_has_no_variable_parts(message: str, expected: str):
    """Arguments, numbers, quoted texts, addresses, paths and instants are replaced; other lines are left out."""
    assert expected == title(message, b'{"who":["Annabel Lee"],"kind":"late or early"}')


def test_short_arguments_are_replaced_as_whole_words():
    """Arguments of four letters inside of a word stay, a longer one is replaced everywhere, a shorter one never."""
    assert "<argument> remail x<argument> out" == title("mail remail xhunter22 out", b'["mail","hunter22","out"]')


def test_a_title_has_no_part_of_a_secret_with_escapes():
    """A secret that the message has as JSON is one argument, as it would be without its quotes."""
    payload = b'{"password": "it\'s\\\\a \\"pass\\""}'
    (secret,) = msgspec.json.decode(payload).values()

    assert "bad row <text>" == title(f"bad row {msgspec.json.encode(secret).decode()}", payload)
    assert "bad row <text>" == title(f"bad row {secret!r}", payload)


@pytest.mark.parametrize("payload", [None, b'{"x":"' + b"y" * 20_000 + b'"}', b"{", b"\xff\xfe"])
def test_without_readable_arguments_there_is_no_title(payload: bytes | None):
    """Messages are left out where the arguments in them cannot be found."""
    assert "" == title("boom", payload)


@pytest.mark.parametrize(
    ("origin", "has_title"),
    [
        (None, True),
        ("cron:nightly/2026-01-01T03:00:00+00:00", True),
        ("run:checkout/order-1", False),
        ("later:unknown/1", False),
    ],
)
def test_parts_of_larger_flows_have_no_title(origin: str | None, has_title: bool):
    """The message of a run may repeat values of its steps, which are no arguments."""
    found = seen(claim(origin=origin), NOW, reason="ERROR", error_type=None, error="boom", traceback=None)

    assert has_title == bool(found.title)


def test_the_frame_is_the_deepest_one_of_the_user():
    """Frames of libraries do not count, and neither do folders above the last and line numbers."""
    assert "payments/client.py:post" == frame(TRACEBACK)


def test_the_place_has_the_line():
    """Places are for a reader of one failure, so they have the line; without a traceback there is none."""
    assert ("payments/client.py:30 in post", None) == (place(TRACEBACK), place("boom"))


def test_of_a_chain_the_last_exception_counts():
    """Frames of causes are ignored, and paths of Windows are read."""
    assert "shop/jobs.py:pay" == frame(CHAIN.replace("\\\\", "\\"))


def test_without_frames_of_the_user_the_first_one_counts():
    """Tasks in a library are found by their handler."""
    text = TRACEBACK.replace("/srv/release-7", "/srv/venv/lib/python3.11/site-packages")

    assert ("payments/jobs.py:charge", "") == (frame(text), frame("no traceback"))


def test_equal_causes_have_one_fingerprint():
    """Other ids, arguments, folders and line numbers make no other group."""
    other = claim(id=8, payload=b'{"who":"Bartholomew","order":8}')
    moved = TRACEBACK.replace("release-7", "release-8").replace("30", "31")

    assert fingerprint("no card 1 of Annabel Lee") == fingerprint(
        "no card 22 of Bartholomew", claim=other, traceback=moved
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "TIMEOUT"},
        {"error_type": "builtins.KeyError"},
        {"traceback": ""},
        {"message": "bang"},
        {"claim": claim(task="refund", payload=b"{}")},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_each_part_makes_a_group_of_its_own(changes: dict[str, Any]):
    """Task, reason, class, title and frame belong to the fingerprint, which names the version of the rules."""
    assert fingerprint() != fingerprint(**changes)
    assert fingerprint().startswith("1-")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Failed(failure(), TRACEBACK), ("ERROR", "builtins.ValueError", "boom", "payments/client.py:post")),
        (Lost("worker 9 is gone"), ("WORKER_LOST", "", "worker <n> is gone", "")),
        (Expired(), ("DEADLINE", "", "the deadline had passed before the attempt could start", "")),
        (Succeeded(), None),
        (Cancelled("no"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_failure_has_a_group(outcome: Any, expected: tuple[str, ...] | None):
    """Failed, lost and expired attempts are seen with their groups; the other ends have none."""
    found = settled(claim(), outcome).seen
    parts = None if found is None else (found.reason, found.type, found.title, found.frame)

    assert expected == parts


def test_the_frames_of_a_traceback_are_read_from_the_innermost_on():
    """Each frame has its place, its source and whether it is own code; of a chain the last exception counts."""
    found = [(each.file, each.function, each.line, each.source, each.own) for each in frames(TRACEBACK)]

    assert [
        ("httpx/_client.py", "get", 7, 'raise ReadTimeout("timed out")', False),
        ("payments/client.py", "post", 30, "httpx.get(url)", True),
        ("payments/jobs.py", "charge", 12, "post(order)", True),
    ] == found
    assert ["pay"] == [each.function for each in frames(CHAIN)]
    assert [] == list(frames(""))
