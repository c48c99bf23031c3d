"""The statements as both libraries want them: the name of the schema before those of tables, ``$1`` for ``:name``."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from redrive.stores.dialects import loader

__all__ = ["Statement", "begin", "compiled", "prepared"]

_COMMENT = re.compile(r"--[^\n]*")
_OURS = re.compile(r"(?<![\w.\"])redrive_\w+")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


_PLANS = "SET LOCAL jit = off"

_PATIENCE = "SET LOCAL idle_in_transaction_session_timeout = '5s'"
"""A process that is stopped within a transaction would else keep the rows of its jobs locked, and nobody could
take them from it, however long its lease is over. Ours say the next statement at once."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as the libraries want it.

    Attributes:
        text: with ``$1``, ``$2`` ...
        names: of its parameters, in that order.
    """

    text: str
    names: tuple[str, ...]


@functools.cache
def prepared(schema: str) -> Mapping[str, Statement]:
    """Read all statements.

    Args:
        schema: where the tables are.

    Returns:
        The statements by their names.
    """
    return {name: compiled(text, schema) for name, text in loader.statements("postgres").items()}


def compiled(text: str, schema: str | None) -> Statement:
    """Write a statement as the libraries want it.

    Args:
        text: with ``:name``.
        schema: put before the names of our tables, sequences and views; None leaves them to the search path.

    Returns:
        The statement.
    """
    bare = _COMMENT.sub("", text).strip()
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    numbered = _PARAMETER.sub(number, bare)
    qualified = numbered if schema is None else _OURS.sub(lambda match: f'"{schema}".{match[0]}', numbered)
    return Statement(qualified, tuple(names))


def begin(*, writes: bool) -> str:
    """Begin a transaction, in one message.

    What writes finds its rows by an index, always. The planner does not know that: for a table that was small when a
    plan was made it chooses to read all of it, and keeps to that when there are a million rows. And it would compile
    plans of many cheap probes, which takes longer than to run them.

    Args:
        writes: will it write? What only reads sees one snapshot.

    Returns:
        Statements without parameters.
    """
    if writes:
        return f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_PATIENCE}; {_PLANS}; SET LOCAL enable_seqscan = off"
    return f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PATIENCE}; {_PLANS}"
