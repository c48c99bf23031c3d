"""Reads the statements of a dialect from the files of this package, once.

Each module of ``stores/operations`` has a file with its statements. A statement that several modules yield stands in
the file of one of them. A block has a name, a description, and one text for both dialects or one for each::

    -- name: heartbeat
    -- Extend the lease of a worker, and return its id if it is registered.
    -- transaction: own
    -- postgres
    UPDATE redrive_workers SET expires_at = greatest(expires_at, :expires_at::timestamptz) WHERE id = :id RETURNING id
    -- sqlite
    UPDATE redrive_workers SET expires_at = max(expires_at, :expires_at) WHERE id = :id RETURNING id

A text under ``-- both`` is written for PostgreSQL, and the rules below turn it into SQLite's. Lines ``-- key: value``
above the texts are headers, for one of the drivers.

For PostgreSQL's:

* ``transaction: none``: the statement may run before the transaction, and twice. It only reads, takes numbers or ends
  sessions.
* ``transaction: own``: what it writes may stay whatever follows; without a transaction it is one by itself.
* ``transaction: last``: nothing follows it; without a transaction it is one by itself.
* ``rows: counted``: of its rows only the number is used.

For SQLite's:

* ``many: rows``: with `Query.many` each execution returns rows.
* ``many: pairs``: with `Query.many` one execution takes all parameters as a JSON object.
* ``first: NAME``: a fragment that runs before this statement with the same parameters. A statement is a function call
  there, and none can write to two tables.

A block ``-- fragment: NAME`` is a part of statements: a line ``-- include NAME`` is replaced by its text. The claim and
the look for due jobs share their common table expressions in this way, and the reads of jobs their columns and the
conditions of a filter. A view cannot take the parameters, and a function would hide its tables from the planner and tie
the statement to a version of the schema; an included fragment costs nothing when it runs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import NamedTuple

# A rule may only change the spelling. What leaves the planner of one database one way to the rows (``OFFSET 0``,
# ``MATERIALIZED``, ``INDEXED BY``) and what computes differently (``greatest`` skips NULL, SQLite's ``max`` does not)
# is written out for each dialect. So is a literal that a rule matches: the rules do not know literals.
_SQLITE = (
    # Casts. PostgreSQL must know the type of a parameter when it plans a statement; SQLite reads it from the value.
    (re.compile(r"::\w+(?:\[\])?"), ""),
    # Row locks. A transaction that writes is the only one on SQLite.
    (re.compile(r"FOR (?:NO KEY UPDATE|UPDATE|SHARE|KEY SHARE)(?: OF \w+)?(?: SKIP LOCKED)?"), ""),
    # Lists. The driver of SQLite passes an array as a JSON document.
    (re.compile(r"= ANY \((:\w+)\)"), r"IN (SELECT value FROM json_each(\1))"),
    # A SELECT without columns, in EXISTS. SQLite requires one.
    (re.compile("SELECT FROM"), "SELECT 1 FROM"),
)
_RULES = {"postgres": (), "sqlite": _SQLITE}

# Each begins with the literal text that `re` searches for before it tries to match.
_BLOCK = re.compile(r"\n-- (name|fragment): (\w+)\n")
_TEXT = re.compile(r"\n-- (both|postgres|sqlite)\n")
_HEADER = re.compile(r"\n-- (transaction|rows|many): (\w+)")
_FIRST = re.compile(r"\n-- first: (\w+)")
_INCLUDE = re.compile(r"-- include (\w+)")

_HEADERS = {"postgres": ("transaction", "rows"), "sqlite": ("many",)}


def spelled(text: str, dialect: str) -> str:
    """Return a text of both dialects as one of them spells it."""
    for pattern, replacement in _RULES[dialect]:
        text = pattern.sub(replacement, text)
    return text


class _Block(NamedTuple):
    kind: str  # ``name`` of a statement, or ``fragment``
    name: str
    head: str  # its description and headers
    text: str  # in one dialect, with the lines ``-- include``


def _read(dialect: str) -> Iterator[_Block]:
    for file in resources.files(__package__).iterdir():
        if file.name.endswith(".sql"):
            _, *parts = _BLOCK.split(file.read_text())
            for kind, name, block in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
                head, *found = _TEXT.split(block)
                texts = dict(zip(found[::2], found[1::2], strict=True))
                if "both" in texts:
                    texts[dialect] = spelled(texts["both"], dialect)
                if dialect in texts:
                    yield _Block(kind, name, head, texts[dialect].strip("\n"))


@functools.cache
def _blocks(dialect: str) -> Mapping[str, _Block]:
    return {block.name: block for block in _read(dialect)}


@functools.cache
def statements(dialect: str) -> Mapping[str, str]:
    """Return the text of each statement of a dialect by its name."""
    blocks = _blocks(dialect)
    return {
        each.name: _INCLUDE.sub(lambda match: blocks[match[1]].text, each.text)
        for each in blocks.values()
        if each.kind == "name"
    }


@functools.cache
def preliminaries() -> Mapping[str, tuple[str, ...]]:
    """Return the statements that run before a statement on SQLite, by its name; most have none."""
    blocks = _blocks("sqlite")
    return {
        name: tuple(blocks[each].text for each in _FIRST.findall(blocks[name].head)) for name in statements("sqlite")
    }


@functools.cache
def headers(dialect: str) -> Mapping[str, Mapping[str, str]]:
    """Return the headers of each statement for the driver of a dialect, by its name."""
    blocks = _blocks(dialect)
    return {
        name: {key: value for key, value in _HEADER.findall(blocks[name].head) if key in _HEADERS[dialect]}
        for name in statements(dialect)
    }
