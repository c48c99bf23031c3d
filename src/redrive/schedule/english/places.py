"""Time zones: ``in Europe/Kyiv``, ``UTC``, ``(America/New_York)``."""

from __future__ import annotations

import functools
import re
import zoneinfo

from redrive.errors import ScheduleError
from redrive.schedule.english.notes import Pieces
from redrive.schedule.english.tokens import Reader
from redrive.schedule.timezone import ABBREVIATIONS, zone

_FORMS = ("in Europe/Kyiv", "in UTC")
_AREAS = {
    "eastern": "America/New_York",
    "central": "America/Chicago",
    "mountain": "America/Denver",
    "pacific": "America/Los_Angeles",
}
_ACCURATE = re.compile(r"[a-z]+/[\w/+-]+", re.IGNORECASE)
_OFFSET = re.compile(r"(?:gmt|utc)[+-]\d.*", re.IGNORECASE)


def zone_phrase(reader: Reader, whole: Pieces) -> bool:
    """Take a time zone; return False if none is next. Raise `ScheduleSyntaxError` for a name that is no time zone."""
    begin = reader.place
    opened = reader.take("in the time zone", "in the timezone", "time zone", "timezone", "in the", "in")
    at = reader.place
    token = reader.next
    if token is None or token.kind != "word":
        reader.place = begin
        return False
    _refuse_offsets(reader)
    if token.word != "utc" and not _ACCURATE.fullmatch(token.text):
        reader.place = begin
        return False
    reader.place += 1
    whole.put("tz", _known(reader, at), reader.said(begin))
    named = reader.take("time zone", "timezone", "time")
    if opened == "in the" and named is None:
        reader.lost('the words "time zone" belong here', f"in {token.text}", f"in the {token.text} time zone")
    return True


def _known(reader: Reader, at: int) -> str:
    text = reader.line.tokens[at].text
    if text.lower() == "utc":
        return "UTC"
    usual = "/".join(
        "_".join(part[:1].upper() + part[1:].lower() for part in each.split("_")) for each in text.split("/")
    )
    for name in (usual, text):
        try:
            zone(name)
        except ScheduleError:
            continue
        return name
    known = _names().get(text.lower())
    if known is None:
        reader.refuse(
            at, f"{text!r} is not a time zone: {text.rpartition('/')[2]} is not in the database of time zones", *_FORMS
        )
    return known


def _refuse_offsets(reader: Reader) -> None:
    """Refuse "EST", "GMT+2" and "Pacific time", which name an offset, or no place."""
    token = reader.next
    assert token is not None  # the caller has looked
    area = _AREAS.get(token.word) if reader.ahead(1) in {"time", "standard", "daylight"} else None
    is_word = token.word in {"et", "ct", "mt", "pt", "ist", "west", "met"} and not token.text.isupper()
    place = None if is_word else ABBREVIATIONS.get(token.text.upper())
    if _OFFSET.fullmatch(token.text) or (token.word in {"utc", "gmt"} and reader.ahead(1) in {"+", "-"}):
        reader.lost("it is an offset, which does not follow the clocks of a place", *_FORMS)
    if place or area:
        reader.lost("it is not the name of a time zone, but of an offset", f"in {place or area}", "in UTC")


def refuse_place(reader: Reader) -> None:
    """Refuse the name of a place without its area; do nothing if another text is next."""
    reader.take("in the", "in")
    if reader.sees("local time", "my time zone", "my timezone", "server time", "our time zone"):
        reader.lost("it is not clear of which place", *_FORMS)
    cities = _cities()
    found = cities.get(f"{reader.word}_{reader.ahead(1)}") or cities.get(reader.word)
    # "Europe Kyiv" lacks its slash.
    after = cities.get(reader.ahead(1))
    if found is None and after is not None and after.lower().startswith(f"{reader.word}/"):
        found = after
    if found:
        reader.lost("a time zone has the name of an area and of a place in it", f"in {found}", "in UTC")


@functools.cache
def _names() -> dict[str, str]:
    return {each.lower(): each for each in zoneinfo.available_timezones()}


@functools.cache
def _cities() -> dict[str, str]:
    return {
        each.rpartition("/")[2].lower(): each
        for each in sorted(zoneinfo.available_timezones(), reverse=True)
        if "/" in each and not each.startswith("Etc/")
    }
