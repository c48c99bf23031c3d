"""The treatment of each case: run by an adapter, tested by hand, or waiting; ``groups.toml``, read and checked.

A group has up to three kinds of cases, and the listing must place each case exactly once:

* ``table = "tests.conformance.adapters.ftl.duration_parse"``: a function runs them. It takes every case of the group
  that is not named below, also new ones.
* ``hand_written = ["D01", ...]``: a hand-written test covers them. The tests carry ``@pytest.mark.case("D01")``.
* ``not_yet = [{part = 3, reason = "...", cases = ["D12"]}]``: nothing runs them until that part of the series is
  built. Instead of ``cases``, an entry may name ``words``: it takes every case that contains one of them, as a value or
  as the name of a field, also new ones. An entry with neither takes the rest of the group. ``part = "later"`` is
  not planned; its reason is what the system has in its place.

Another folder of cases may have groups that are not in the listing. Nothing runs their cases, and the report counts
them as not yet; in the project's own files they are an error (test_listing.py).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.conformance.loading import Case

__all__ = ["Group", "Listing", "ListingError", "NotYet", "Status", "load_listing"]

PARTS = (1, 2, 3, 4, 5, "later")


class ListingError(Exception):
    """A contradiction or an unknown key in the listing."""


class Status(Enum):
    """The treatment of a case."""

    TABLE = "table"
    HAND_WRITTEN = "hand-written"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class NotYet:
    """Cases that wait for a part of the system.

    Attributes:
        part: the number of the part in the series of five, or ``"later"``.
        reason: the feature of it for which they wait.
        cases: their keys.
        words: values or names of fields that identify them.
    """

    part: int | str
    reason: str
    cases: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def takes_the_rest(self) -> bool:
        """Return True if all cases wait that are not named elsewhere in the listing."""
        return not self.cases and not self.words

    def takes(self, case: Case) -> bool:
        """Return True if a case is named here, or contains one of the words."""
        return case.key in self.cases or not set(self.words).isdisjoint(_words_in(case.data))


@dataclass(frozen=True)
class Group:
    """One group of the listing.

    Attributes:
        name: file and group, as in ``ftl.duration_parse``.
        table: the dotted name of the adapter, or none.
        hand_written: keys of the cases with hand-written tests.
        not_yet: the entries of the cases that wait.
    """

    name: str
    table: str | None
    hand_written: tuple[str, ...]
    not_yet: tuple[NotYet, ...]

    def status_of(self, case: Case) -> Status | None:
        """Return the status of a case; None if the listing forgot it."""
        if case.key in self.hand_written:
            return Status.HAND_WRITTEN
        if self.waiting_for(case) is not None:
            return Status.NOT_YET
        return Status.TABLE if self.table else None

    def waiting_for(self, case: Case) -> NotYet | None:
        """Return the entry for which a case waits; None if it does not wait."""
        if case.key in self.hand_written:
            return None
        named = [entry for entry in self.not_yet if entry.takes(case)]
        rest = [entry for entry in self.not_yet if entry.takes_the_rest]
        return next(iter(named + rest), None)

    def named_keys(self) -> Iterator[str]:
        """Yield every key that the listing names, as often as it names it."""
        yield from self.hand_written
        for entry in self.not_yet:
            yield from entry.cases


@dataclass(frozen=True)
class Listing:
    """The groups of the listing, by name."""

    groups: dict[str, Group]

    def group_of(self, case: Case) -> Group | None:
        """Return the listing's group of a case, if there is one."""
        return self.groups.get(case.group_name)

    def status_of(self, case: Case) -> Status | None:
        """Return the status of a case: one of an unknown group waits; None if its group does not place it."""
        group = self.group_of(case)
        return group.status_of(case) if group else Status.NOT_YET

    def problems(self, cases: Iterable[Case]) -> list[str]:
        """Return the contradictions between the listing and the project's own case files, a sentence each."""
        groups: dict[str, list[Case]] = {}
        for case in cases:
            groups.setdefault(case.group_name, []).append(case)
        unlisted = [f"no group {name} in the listing" for name in groups if name not in self.groups]
        return unlisted + [text for group in self.groups.values() for text in _problems(group, groups.get(group.name))]


def _problems(group: Group, cases: list[Case] | None) -> Iterator[str]:
    if cases is None:
        yield f"{group.name} is listed, but no file has this group"
        return
    keys = {case.key for case in cases}
    named = list(group.named_keys())
    yield from (f"{group.name} lists {key!r}, which does not exist" for key in named if key not in keys)
    yield from (f"{group.name} lists {key!r} twice" for key in sorted(set(named)) if named.count(key) > 1)
    yield from (f"{group.name} waits for {word!r}, which no case says" for word in _idle_words(group, cases))
    yield from (f"{group.name} does not say what becomes of {c.key!r}" for c in cases if not group.status_of(c))
    if _takes_nothing(group, cases):
        yield f"{group.name} names every case and yet says what becomes of the rest"


def _idle_words(group: Group, cases: list[Case]) -> list[str]:
    used = {word for case in cases for word in _words_in(case.data)}
    return [word for entry in group.not_yet for word in entry.words if word not in used]


def _takes_nothing(group: Group, cases: list[Case]) -> bool:
    rest = [entry for entry in group.not_yet if entry.takes_the_rest]
    takes_some = any(group.status_of(case) is Status.TABLE or group.waiting_for(case) in rest for case in cases)
    return bool(group.table or rest) and not takes_some


def _words_in(data: Any) -> set[str]:
    """Yield every word of a case: its texts and the names of its fields."""
    match data:
        case str():
            return {data}
        case dict():
            return set(data).union(*map(_words_in, data.values()))
        case list():
            return set().union(*map(_words_in, data))
        case _:
            return set()


def load_listing(path: Path) -> Listing:
    """Read ``groups.toml``.

    Args:
        path: the file.

    Returns:
        The listing.

    Raises:
        ListingError: a group has an unknown key, an unknown part, or two entries for the rest.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = [_group(f"{file}.{name}", table) for file, tables in content.items() for name, table in tables.items()]
    return Listing({group.name: group for group in groups})


def _group(name: str, table: dict[str, Any]) -> Group:
    if unknown := set(table) - {"table", "hand_written", "not_yet"}:
        raise ListingError(f"{name}: unknown {', '.join(sorted(unknown))}")
    not_yet = tuple(_not_yet(name, entry) for entry in table.get("not_yet", []))
    group = Group(name, table.get("table"), tuple(table.get("hand_written", [])), not_yet)
    if (group.table is not None) + sum(entry.takes_the_rest for entry in not_yet) > 1:
        raise ListingError(f"{name}: more than one entry takes the cases that are not named")
    return group


def _not_yet(name: str, entry: dict[str, Any]) -> NotYet:
    if unknown := set(entry) - {"part", "reason", "cases", "words"}:
        raise ListingError(f"{name}: unknown {', '.join(sorted(unknown))} in not_yet")
    if entry.get("part") not in PARTS or not entry.get("reason"):
        raise ListingError(f"{name}: not_yet needs a part of {PARTS} and a reason")
    return NotYet(entry["part"], entry["reason"], tuple(entry.get("cases", [])), tuple(entry.get("words", [])))
