"""SQL texts for psycopg and asyncpg: table names with their schema, ``$1`` for ``:name``, and session settings."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.query import Compound, Query
from redrive.stores.statements import loader
from redrive.stores.values.postgres import arguments

_COMMENT = re.compile(r"--[^\n]*")
_OURS = re.compile(r"(?<![\w.\"])redrive_\w+")
_NUMBER = re.compile(r"\$(\d+)")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")

# Whether a session is one of a standby, and whether it cannot write.
STATE = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"

_IDLE_TIMEOUT = "idle_in_transaction_session_timeout"
_SHORT = "'5s'"
_SESSION = (
    # A process that is stopped within a transaction would keep the rows of its jobs locked, long after its lease has
    # ended. redrive sends the next statement of a transaction at once. A process that is stopped in the middle of a
    # statement does not count as idle: the rescuer ends its session (``stuck_end``).
    (_IDLE_TIMEOUT, _SHORT),
    # Compiling the plan of many cheap probes takes longer than executing it.
    ("jit", "off"),
    # Writes find their rows by an index, always. The planner chooses to read all of a table that was small when the
    # plan was made, and keeps that plan when the table has a million rows.
    ("enable_seqscan", "off"),
    # A plan for the values of each call costs a claim of fifty jobs a fifth of its time, and is the same each time.
    ("plan_cache_mode", "force_generic_plan"),
)


def _session_settings(settings: PostgresSettings) -> tuple[tuple[str, str], ...]:
    # A transaction of a user may hold a key for any time. Half of the time that asyncpg waits for an answer: so it is
    # the database that ends the wait, and the connection stays open.
    return (*_SESSION, ("lock_timeout", str(_milliseconds(settings) // 2 or 1)))


def _milliseconds(settings: PostgresSettings) -> int:
    return max(1, round(settings.timeout.total_seconds() * 1000))


def session(settings: PostgresSettings, server: str = "NULL") -> str:
    """Return the first statement of a session that belongs to redrive as long as it lasts: a query with one row.

    Its last column is the expression ``server``, as text.
    """
    values = [_set(name, value.strip("'")) for name, value in _session_settings(settings)]
    if settings.synchronous_commit:
        values.append(
            f"CASE current_setting('synchronous_commit') WHEN 'off' THEN {_set('synchronous_commit', 'on')} END"
        )
    else:
        values.append(_set("synchronous_commit", "off"))
    return f"SELECT {', '.join([*values, server])}"


def _set(name: str, value: str) -> str:
    return f"set_config('{name}', '{value}', false)"


# ``off``, which a server or a role may have as its default, is raised to ``on``: the commit is on the disk of the
# server. The other values, which differ in what they require of standbys, stay as they are.
def durability(settings: PostgresSettings) -> str:
    """Return the statement that sets when the commit of a transaction is acknowledged."""
    if not settings.synchronous_commit:
        return "SET LOCAL synchronous_commit = off"
    return "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"


def handler_transaction(settings: PostgresSettings) -> str:
    """Return the statements that begin a transaction for a handler, for one message."""
    # The handler may take its time between two statements, but a process that is stopped inside the block must not
    # keep its locks forever.
    idle, patience = _milliseconds(settings), dict(_session_settings(settings))["lock_timeout"]
    return f"BEGIN; SET LOCAL {_IDLE_TIMEOUT} = {idle}; SET LOCAL lock_timeout = {patience}; {durability(settings)}"


def before_completion() -> str:
    """Return the statement before redrive completes the job of a handler's transaction, which locks its row."""
    return f"SET LOCAL {_IDLE_TIMEOUT} = {_SHORT}"


# What DISCARD ALL would do, but for the plans, which belong to no handler, and for temporary tables: a session that has
# had some is closed. The statements after COMMIT cannot fail; before it, the handler's locks and settings still count.
_COMMIT = (
    "COMMIT; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *; "
    "SELECT pg_advisory_unlock_all(); DISCARD SEQUENCES; SELECT 1 WHERE pg_my_temp_schema() <> 0"
)


def commit_handler(settings: PostgresSettings) -> str:
    """Return the statements that commit the transaction of a handler, for one message.

    They undo what it has changed in the session. A row of the last one means that something is left. Behind a pool that
    gives each transaction another session there is nothing to undo in a session of ours.
    """
    return "COMMIT" if settings.pgbouncer else _COMMIT


class CompiledStatement(msgspec.Struct, frozen=True):
    """A statement of the dialect with numbered parameters."""

    text: str  # SQL with ``$1``, ``$2``
    names: tuple[str, ...]  # names of its parameters, in that order


@functools.cache
def prepared(schema: str) -> Mapping[str, CompiledStatement]:
    """Return all statements of the dialect by name, compiled for a schema."""
    return {name: compiled(text, schema) for name, text in loader.statements("postgres").items()}


def composed(
    query: Query | Compound, schema: str, channel: str | None = None, uid: str | None = None
) -> tuple[str, Sequence[Any]]:
    """Return one statement for a query or a batch, and the values of its parameters.

    If it also notifies a channel, the rows of the query are returned only by a statement with the parameter
    ``channel``. Only a statement with the parameter ``uid`` checks the id of the database.
    """
    every = prepared(schema)
    queries = query.queries if isinstance(query, Compound) else (query,)
    if len(queries) == 1 and (channel is None or "channel" in every[queries[0].name].names):
        statement = every[queries[0].name]
        return statement.text, arguments(queries[0], statement.names, {"channel": channel, "uid": uid})
    text = _combined(schema, channel, *(each.name for each in queries))
    return text, [value for each in queries for value in arguments(each, every[each.name].names, {})]


def counted(query: Query | Compound) -> bool:
    """Return True if only the number of the rows of a query is used."""
    return isinstance(query, Query) and "rows" in loader.headers("postgres")[query.name]


def inlined(text: str, values: Sequence[Any]) -> str:
    """Return a statement with its parameters as literals, for a message of several statements."""
    return _NUMBER.sub(lambda number: _literal(values[int(number[1]) - 1]), text)


def _literal(value: object) -> str:
    # A handler may have changed how the server reads a backslash.
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'"
    if isinstance(value, bytes):
        return f"decode('{value.hex()}', 'hex')"
    assert isinstance(value, int)
    return str(value)


@functools.cache
def _combined(schema: str, channel: str | None, *names: str) -> str:
    """Return one statement that executes several, as parts of a WITH, with their parameters renumbered."""
    # PostgreSQL executes each part that writes to its end, even if no other part reads it, and the last one too. All
    # see the database as it was before.
    count, texts = 0, []
    for each in (prepared(schema)[name] for name in names):
        texts.append(_renumbered(each.text, count))
        count += len(each.names)
    last = texts.pop() if channel is None else f"SELECT pg_notify('{channel}', '')"
    parts = ", ".join(f"part_{i} AS ({text})" for i, text in enumerate(texts, 1))
    # A part that writes must stand at the top level, so the parts go before those of the last statement.
    for keyword in ("WITH RECURSIVE ", "WITH "):
        if last.startswith(keyword):
            return f"{keyword}{parts}, {last.removeprefix(keyword)}"
    return f"WITH {parts} {last}"


def _renumbered(text: str, offset: int) -> str:
    return _NUMBER.sub(lambda number: f"${offset + int(number[1])}", text)


def compiled(text: str, schema: str | None) -> CompiledStatement:
    """Compile a statement with ``:name`` parameters; without a schema its tables are found by the search path."""
    bare = _COMMENT.sub("", text).strip()
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    numbered = _PARAMETER.sub(number, bare)
    qualified = numbered if schema is None else _OURS.sub(lambda match: f'"{schema}".{match[0]}', numbered)
    return CompiledStatement(qualified, tuple(names))


def begin(settings: PostgresSettings, *, writes: bool) -> str:
    """Return the statements that begin a transaction, for one message; one that does not write reads one snapshot."""
    local = dict(_session_settings(settings)) if settings.pgbouncer else {}
    if not writes:
        local |= {"enable_seqscan": "on", "plan_cache_mode": "auto"}
    mode = "READ COMMITTED READ WRITE" if writes else "REPEATABLE READ READ ONLY"
    texts = [f"BEGIN ISOLATION LEVEL {mode}", *(f"SET LOCAL {name} = {local[name]}" for name in local)]
    if settings.pgbouncer and writes:
        texts.append(durability(settings))
    return "; ".join(texts)
