"""The statements as both libraries want them: the name of the schema before those of tables, ``$1`` for ``:name``."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.stores.dialects import loader
from redrive.stores.dialects.postgres.values import arguments
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.query import Query

__all__ = ["Statement", "begin", "compiled", "durability", "ending", "lent", "prepared", "said", "session"]

_COMMENT = re.compile(r"--[^\n]*")
_OURS = re.compile(r"(?<![\w.\"])redrive_\w+")
_NUMBER = re.compile(r"\$(\d+)")
_WITH = re.compile(r"WITH (RECURSIVE )?")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


_SILENCE = "idle_in_transaction_session_timeout"
_SOON = "'5s'"
_HABITS = ((_SILENCE, _SOON), ("jit", "off"), ("enable_seqscan", "off"))
"""What our transactions have in common.

A process that is stopped within a transaction would else keep the rows of its jobs locked, and nobody could take them
from it, however long its lease is over. Ours say the next statement at once. One that is stopped in the middle of a
statement does not count as idle: the rescuer sees to that (``stuck_end``).

What writes finds its rows by an index, always. The planner does not know that: for a table that was small when a plan
was made it chooses to read all of it, and keeps to that when there are a million rows. And it would compile plans of
many cheap probes, which takes longer than to run them.
"""


def _habits(settings: Settings) -> tuple[tuple[str, str], ...]:
    # A transaction of a user's may hold a key for as long as it likes. Half of what asyncpg waits for an answer: so it
    # is the database that ends the wait, and the connection stays.
    return (*_HABITS, ("lock_timeout", str(_milliseconds(settings) // 2 or 1)))


def _milliseconds(settings: Settings) -> int:
    return max(1, round(settings.timeout.total_seconds() * 1000))


def session(settings: Settings) -> str:
    """Write what is said first on a session that belongs to redrive as long as it lasts.

    Args:
        settings: how long to wait for a lock.

    Returns:
        Statements without parameters.
    """
    return "; ".join([*(f"SET {name} = {value}" for name, value in _habits(settings)), durability(settings)])


def durability(settings: Settings, *, local: bool = False) -> str:
    """Write what lets a commit be acknowledged only when it is on the disk of the server.

    ``off``, which a server or a role may have as its default, is raised to ``on``. The other values, which differ in
    what they ask of standbys, are left as they are.

    Args:
        settings: whether that is wanted; otherwise it is turned off.
        local: for the present transaction only.

    Returns:
        One statement without parameters.
    """
    if not settings.synchronous_commit:
        return f"SET {'LOCAL ' if local else ''}synchronous_commit = off"
    return (
        f"SELECT set_config('synchronous_commit', 'on', {'true' if local else 'false'}) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )


def lent(settings: Settings) -> str:
    """Write what is said first in a transaction that is lent to a handler.

    The handler may take its time between two statements, but a process that is stopped inside of the block must not
    keep its locks for ever.

    Args:
        settings: how long the session may be silent, and half of that for how long a statement waits for a lock.

    Returns:
        Statements without parameters.
    """
    silence, patience = _milliseconds(settings), dict(_habits(settings))["lock_timeout"]
    return f"SET LOCAL {_SILENCE} = {silence}; SET LOCAL lock_timeout = {patience}; {durability(settings, local=True)}"


def ending() -> str:
    """Write what is said before redrive ends a lent transaction: from now on, it holds the lock of its job."""
    return f"SET LOCAL {_SILENCE} = {_SOON}"


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


def said(query: Query, schema: str, channel: str | None = None) -> tuple[str, Sequence[Any]]:
    """Write what is to be said to the server for a query and what goes with it: one statement.

    Args:
        query: what is to be run.
        schema: where the tables are.
        channel: who is to be told that it has been run; then nobody hears what it answers.

    Returns:
        The text, and its parameters.
    """
    every = prepared(schema)
    if not query.also and channel is None:
        statement = every[query.name]
        return statement.text, arguments(query, statement.names)
    queries = (*query.also, query)
    text = _together(schema, channel, *(each.name for each in queries))
    return text, [value for each in queries for value in arguments(each, every[each.name].names)]


@functools.cache
def _together(schema: str, channel: str | None, *names: str) -> str:
    """One statement that runs several: as parts of a WITH, their parameters counted on.

    PostgreSQL runs each part that writes to its end, whether or not anything asks for it, and the last one too. All
    see the database as it was before.
    """
    count, texts = 0, []
    for each in (prepared(schema)[name] for name in names):
        texts.append(_counted_on(each.text, count))
        count += len(each.names)
    last = texts.pop() if channel is None else f"SELECT pg_notify('{channel}', '')"
    parts = ", ".join(f"part_{i} AS ({text})" for i, text in enumerate(texts, 1))
    own = _WITH.match(last)
    return f"{own[0]}{parts}, {last[own.end() :]}" if own else f"WITH {parts} {last}"


def _counted_on(text: str, count: int) -> str:
    """The statement with parameters that are numbered from the one after so many."""
    return _NUMBER.sub(lambda number: f"${count + int(number[1])}", text)


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


def begin(settings: Settings, *, writes: bool) -> str:
    """Begin a transaction, in one message.

    Args:
        settings: whether each transaction gets another session, on which `session` has not been said.
        writes: will it write? What only reads sees one snapshot, and may read whole tables.

    Returns:
        Statements without parameters.
    """
    wanted = dict(_habits(settings)) if settings.pgbouncer else {}
    if not writes:
        wanted["enable_seqscan"] = "on"
    mode = "READ COMMITTED READ WRITE" if writes else "REPEATABLE READ READ ONLY"
    words = [f"BEGIN ISOLATION LEVEL {mode}", *(f"SET LOCAL {name} = {wanted[name]}" for name in wanted)]
    if settings.pgbouncer and writes:
        words.append(durability(settings, local=True))
    return "; ".join(words)
