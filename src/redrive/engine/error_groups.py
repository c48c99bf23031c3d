"""Error groups: the failures of a task that have the same cause, as far as their texts show. PURE.

A group is found by its *fingerprint*: a digest of the task, the reason, the class of the exception, the title and the
frame. The *title* is the first line of the message without what differs from job to job: arguments, numbers, quoted
texts, addresses, paths, instants. The *frame* is the deepest one in the user's code, without folders and line numbers,
so that a deployment does not make new groups. A fingerprint begins with the version of these rules.

A title is stored and shown for all jobs of a group, so it has no argument of the job. Where these are not at hand, as
in a job that belongs to a run, a machine or a topic, or where they are large, the title is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from redrive.engine.origin import Kind, read_origin
from redrive.engine.records import Claim
from redrive.engine.secrets import secrets_of

#: The version of the rules; another version makes other fingerprints, and old groups stay as they are.
VERSION: Final = 1

# Characters of a message that are read, and of a title.
_READ, _LONGEST = 500, 200

# The largest arguments that are decoded for a title, in bytes: about 0.1 ms.
_LARGEST = 16 * 1024

# Shorter arguments also occur by chance in a message; those from `_ANYWHERE` on are found inside of words, too.
_SHORTEST, _ANYWHERE = 4, 8

_VARIABLE: Final = re.compile(
    r"""
      (?P<url>\b[a-z][a-z0-9+.-]*://[^\s"'>]+)
    | (?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<id>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)
    | (?P<time>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?)
    | (?P<text>"[^"]*"|(?<!\w)'[^']*'(?!\w))
    | (?P<path>(?<![\w<])(?:/[\w.-]+){2,}/?)
    | (?P<hex>\b(?:0x[0-9a-f]+|(?=[a-f]*\d)[0-9a-f]{8,})\b)
    | (?P<n>\d+(?:[.,]\d+)*)
    """,
    re.VERBOSE | re.IGNORECASE,
)

# A character of each alternative above, which many messages have none of.
_MAY_VARY: Final = re.compile(r"[\d'\"@/]")

_FRAME: Final = re.compile(r'^[ |]*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>.+)$')
_FOREIGN: Final = re.compile(r"[\\/](?:site-packages|dist-packages|python\d(?:\.\d+)?)[\\/]|^<frozen ")
_SEPARATOR: Final = re.compile(r"[\\/]")
_HEAD: Final = "Traceback (most recent call last):"


class ErrorSeen(msgspec.Struct, frozen=True, gc=False):
    """A failure as a member of its group.

    Attributes:
        reason: one upper-case word.
        type: the qualified name of the exception; empty if there was none.
        title: the message without what differs from job to job.
        frame: the place in the user's code, as ``payments/client.py:post``; empty without a traceback.
        at: when the attempt ended.
    """

    fingerprint: str
    task: str
    reason: str
    type: str
    title: str
    frame: str
    at: datetime


def seen(
    claim: Claim, at: datetime, *, reason: str, error_type: str | None, error: str | None, traceback: str | None
) -> ErrorSeen:
    """Return a failure of a claimed job as a member of its group."""
    kind, where = error_type or "", frame(traceback or "")
    text = title(error or "", claim.payload) if _has_arguments(claim) else ""
    parts = f"{claim.task}\0{reason}\0{kind}\0{text}\0{where}"
    digest = blake2b(parts.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return ErrorSeen(f"{VERSION}-{digest}", claim.task, reason, kind, text, where, at)


def _has_arguments(claim: Claim) -> bool:
    origin = read_origin(claim.origin)
    return claim.origin is None or (origin is not None and origin.kind in (Kind.CRON, Kind.REFRESH, Kind.BATCH))


def title(message: str, payload: bytes | None) -> str:
    """Return the first line of a message without arguments, numbers and other variable parts.

    It is empty if the arguments are unknown or large.
    """
    line = message.strip().partition("\n")[0]
    if payload is None or len(payload) > _LARGEST:
        return ""
    try:
        document = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    # A secret argument is left out also where the message has it with escapes.
    for value in sorted({*_texts(document), *secrets_of(document)}, key=len, reverse=True):
        if value in line:
            line = _without(line, value)
    line = line[:_READ]
    if _MAY_VARY.search(line):
        line = _VARIABLE.sub(lambda found: f"<{found.lastgroup}>", line)
    return line[:_LONGEST]


def _without(line: str, value: str) -> str:
    if len(value) >= _ANYWHERE:
        return line.replace(value, "<argument>")
    return re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "<argument>", line)


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a document, at any depth."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str) and len(value) >= _SHORTEST:
        yield value


def frame(traceback: str) -> str:
    """Return the deepest frame of a traceback that is neither in a library nor in Python itself, without its line.

    Without such a frame it is the first one, which is the handler. Of a chain of exceptions the last one counts.
    """
    found = _deepest(traceback)
    return "" if found is None else f"{_short(found)}:{found['name']}"


def place(traceback: str) -> str | None:
    """Return the same frame with its line, as ``payments/client.py:41 in post``; None without a traceback."""
    found = _deepest(traceback)
    return None if found is None else f"{_short(found)}:{found['line']} in {found['name']}"


def _deepest(traceback: str) -> re.Match[str] | None:
    deepest = None
    for line in reversed(traceback[max(traceback.rfind(_HEAD), 0) :].split("\n")):
        found = _FRAME.match(line)
        if found is not None:
            deepest = found
            if not _FOREIGN.search(found["file"]):
                break
    return deepest


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame of a traceback.

    Attributes:
        line: its number.
        source: the text of the line; empty if it was not at hand.
        own: False in a library and in Python itself.
    """

    file: str
    function: str
    line: int
    source: str
    own: bool


def frames(traceback: str) -> Iterator[Frame]:
    """Yield the frames of a traceback, the innermost one first. Of a chain of exceptions the last one counts."""
    lines = traceback[max(traceback.rfind(_HEAD), 0) :].split("\n")
    for number in range(len(lines) - 1, -1, -1):
        found = _FRAME.match(lines[number])
        if found is not None:
            below = lines[number + 1 : number + 2]
            source = below[0].strip() if below and below[0].startswith("    ") else ""
            own = not _FOREIGN.search(found["file"])
            yield Frame(_short(found), found["name"], int(found["line"]), source, own)


def _short(found: re.Match[str]) -> str:
    return "/".join(_SEPARATOR.split(found["file"])[-2:])
