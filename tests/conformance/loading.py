"""The case files, read into `Case` values.

The files come from different authors and have one of three forms: one list per key (``ftl``, ``refresh``), one flat
list of cases that name their group or area (``couchbase``, ``pgqrs``, ``durable``), and a list of groups
(``inprocess``). A file is read by its form, whatever its name; this module alone deals with the difference.

A case is identified by its *key*. That is its own ``id`` if it has one; otherwise the group and the case's title
(``ftl.async_call_lifecycle: failure with retries left``); otherwise the group and its first field, which in tables is
the input. Cases of one group that would share a key get their fingerprint appended. The *fingerprint* is a hash of the
group and the content, so it survives any reordering of the file and changes when the case does. Cases that stand in
their group twice, word for word, are distinguished by a number.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["FILES", "Case", "CaseFileError", "load_file", "load_folder"]

FILES = ("ftl", "couchbase", "inprocess", "pgqrs", "durable", "refresh", "flows")
"""The project's own files, in the order of reports; others follow."""
_PROSE = {"_meta", "meta", "about", "format"}
_NO_GROUP = "no group"
_LABEL_LENGTH = 80


class CaseFileError(Exception):
    """A case file cannot be read, or has no cases."""


@dataclass(frozen=True)
class Case:
    """One case of one group.

    Attributes:
        file: the stem of the file it stands in, such as ``ftl``.
        group: the group as the file names it.
        key: how markers, listings and reports name it.
        data: the case itself, as it stands in the file.
        shared: the fields that the file gives for all cases of the group.
        fingerprint: twelve hexadecimal digits that stand for group and content.
    """

    file: str
    group: str
    key: str
    data: Mapping[str, Any]
    shared: Mapping[str, Any]
    fingerprint: str

    @property
    def group_name(self) -> str:
        """Return the group with its file, as reports write it."""
        return f"{self.file}.{self.group}"


def load_folder(folder: Path) -> tuple[Case, ...]:
    """Read every case file of a folder; files that are missing are no error.

    Args:
        folder: where the ``.json`` files are.

    Returns:
        The cases, in the order of `FILES`, then of the names of other files, and then of each file.

    Raises:
        CaseFileError: the folder has no case file at all, or one of them cannot be read.
    """
    present = {path.stem: path for path in sorted(folder.glob("*.json"))}
    if not present:
        raise CaseFileError(f"{folder}: no case file here (*.json)")
    stems = [stem for stem in FILES if stem in present] + [stem for stem in present if stem not in FILES]
    return tuple(case for stem in stems for case in load_file(present[stem]))


def load_file(path: Path) -> tuple[Case, ...]:
    """Read one case file.

    Args:
        path: the file.

    Returns:
        Its cases in order.

    Raises:
        CaseFileError: it is no JSON object, or has no case.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cases = tuple(_named(path.stem, _groups(content)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CaseFileError(f"{path.name} does not have the form of a case file: {error!r}") from error
    if not cases:
        raise CaseFileError(f"{path.name} has no case")
    return cases


def fingerprint_of(group_name: str, data: object) -> str:
    """Hash a group's name and a case's content.

    Args:
        group_name: file and group.
        data: the case.

    Returns:
        Twelve hexadecimal digits, the same for the same content in any order of keys.
    """
    text = json.dumps([group_name, data], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class _Group:
    """A group as found in the file, its cases not yet named."""

    name: str
    cases: list[Any]
    shared: dict[str, Any]
    is_single: bool = False


def _groups(content: dict[str, Any]) -> Iterator[_Group]:
    if isinstance(content.get("groups"), list):
        yield from (_keyed_group(group["id"], group) for group in content["groups"])
    elif isinstance(content.get("cases"), list):
        yield from _invariants(content.get("invariants", []))
        groups: dict[str, list[Any]] = {}
        for case in content["cases"]:
            groups.setdefault(_group_of(case), []).append(case)
        yield from (_Group(name, cases, {}) for name, cases in groups.items())
    else:
        yield from (_keyed_group(key, value) for key, value in content.items() if key not in _PROSE)


def _group_of(case: Any) -> str:
    return str(case.get("group") or case.get("area") or _NO_GROUP) if isinstance(case, dict) else _NO_GROUP


def _keyed_group(name: str, value: Any) -> _Group:
    if isinstance(value, list):
        return _Group(name, value, {})
    if isinstance(value, dict) and isinstance(value.get("cases"), list):
        return _Group(name, value["cases"], {key: item for key, item in value.items() if key != "cases"})
    return _Group(name, [value], {}, is_single=True)


def _invariants(sentences: list[str]) -> Iterator[_Group]:
    # They stand apart from the scenarios and are sentences that begin with their id: "I1 at most one ...".
    if sentences:
        cases = [dict(zip(("id", "text"), sentence.split(" ", 1), strict=True)) for sentence in sentences]
        yield _Group("invariants", cases, {})


def _named(stem: str, groups: Iterator[_Group]) -> Iterator[Case]:
    for group in groups:
        group_name = f"{stem}.{group.name}"
        # A case that is no object has no fields; adapters refuse the field that stands for it here.
        cases = [data if isinstance(data, dict) else {"value": data} for data in group.cases]
        fingerprints = [fingerprint_of(group_name, data) for data in cases]
        keys = [group_name] if group.is_single else [_key(group_name, data) for data in cases]
        keys = _numbered(_with_fingerprints(keys, fingerprints))
        for key, data, fingerprint in zip(keys, cases, fingerprints, strict=True):
            yield Case(stem, group.name, key, data, group.shared, fingerprint)


def _key(group_name: str, data: dict[str, Any]) -> str:
    if "id" in data:
        return str(data["id"])
    if "case" in data:
        return f"{group_name}: {data['case']}"
    first = next(iter(data.values()), None)
    label = " ".join(first.split()) if isinstance(first, str) and first.strip() else json.dumps(first)
    return f"{group_name}: {label[:_LABEL_LENGTH]}"


def _with_fingerprints(keys: list[str], fingerprints: list[str]) -> list[str]:
    count = Counter(keys)
    pairs = zip(keys, fingerprints, strict=True)
    return [f"{key} [{fingerprint}]" if count[key] > 1 else key for key, fingerprint in pairs]


def _numbered(keys: list[str]) -> list[str]:
    count = Counter(keys)
    return [f"{key} #{keys[:place].count(key) + 1}" if count[key] > 1 else key for place, key in enumerate(keys)]
