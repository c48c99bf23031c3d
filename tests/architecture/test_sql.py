"""Each statement has a file in every dialect and takes the time and random numbers from outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, name

DIALECTS = PACKAGE / "stores" / "dialects"
OPERATIONS = PACKAGE / "stores" / "operations"
QUERIES = sorted(DIALECTS.glob("*/queries/*.sql"))
FRAGMENTS = sorted(DIALECTS.glob("*/fragments/*.sql"))
SCHEMAS = sorted([*DIALECTS.glob("*/schema.sql"), *DIALECTS.glob("*/migrations/*.sql")])

CLOCK = re.compile(
    r"\b(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|julianday|unixepoch|strftime|datetime)\s*\("
    r"|\bcurrent_(?:timestamp|date|time)\b|\blocaltime(?:stamp)?\b|'(?:now|today|tomorrow|yesterday)'",
    re.IGNORECASE,
)
RANDOM = re.compile(
    r"\b(?:random|randomblob|setseed|gen_random_uuid|gen_random_bytes|uuid_generate_\w+|uuidv\d)\s*\(", re.IGNORECASE
)
CLOCK_VIEW = re.compile(r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?VIEW\s+redrive_clock\b", re.IGNORECASE)

# A migration may draw a random value that the database keeps for ever, such as its own uid.
DRAWN_ONCE = {
    "src/redrive/stores/dialects/postgres/migrations/0001_pre_jobs.sql": ["gen_random_uuid("],
    "src/redrive/stores/dialects/sqlite/migrations/0001_pre_jobs.sql": ["randomblob("],
}


def bare(sql: str) -> str:
    """Return a statement without its comments."""
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", sql, flags=re.DOTALL)


def statements(sql: str) -> list[str]:
    """Return the statements of a script, split at semicolons outside of string literals."""
    masked = re.sub(r"'[^']*'", lambda literal: "x" * len(literal[0]), bare(sql))
    ends = [match.start() for match in re.finditer(";", masked)]
    parts = [bare(sql)[start:end] for start, end in zip([0, *(end + 1 for end in ends)], [*ends, None], strict=True)]
    return [part for part in parts if part.strip()]


def yielded() -> dict[str, list[str]]:
    """Return the names of all queries, each with the modules that yield it; a computed name is ``?``."""
    found: dict[str, list[str]] = {}
    for path in sorted(OPERATIONS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Query":
                first = node.args[0] if node.args else None
                query = first.value if isinstance(first, ast.Constant) else "?"
                found.setdefault(str(query), []).append(path.name)
    return found


def taken() -> set[str]:
    """Return the names of the statements that the migrator runs itself, before a schema exists."""
    nodes = ast.walk(ast.parse((PACKAGE / "stores" / "migrate.py").read_text()))
    keys = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_operations_name_their_queries_literally():
    """Operations never compute the name of a query, so that a search finds each use of a statement."""
    assert "?" not in yielded()


@pytest.mark.parametrize("dialect", sorted(path.parent.name for path in DIALECTS.glob("*/queries")))
def test_each_dialect_has_exactly_the_queries_that_are_run(dialect: str):
    """Statement files of each dialect have the names that operations yield and the migrator runs."""
    files = {path.stem for path in (DIALECTS / dialect / "queries").glob("*.sql")}

    assert files == yielded().keys() | taken()


COMPARED_WITH_SERVER_TIMES = {"stuck_end"}
"""Queries that compare the time with instants that the server itself has written, such as those of pg_stat_activity."""


def test_at_least_one_dialect_exists():
    """This module finds dialects and operations to check."""
    assert QUERIES
    assert SCHEMAS


def bad(paths: Iterable[Path], is_good: Callable[[Path], object]) -> list[str]:
    """Return the names of the files that are not good."""
    return [name(path) for path in paths if not is_good(path)]


def test_a_query_file_holds_one_statement():
    """Query files hold one statement, without a semicolon that would allow a second one."""

    def is_one(path: Path) -> bool:
        code = path.read_text()
        return len(statements(code)) == 1 and ";" not in bare(code).strip().removesuffix(";")

    assert [] == bad(QUERIES, is_one)


def test_a_query_file_states_its_result_and_its_callers():
    """Query files begin with two comment lines: the result, and the callers."""

    def is_described(path: Path) -> bool:
        promise, callers, *rest = path.read_text().splitlines()
        options = r"-- (?:(?:transaction|many): \w+|(?:include|first:) \w+\.sql)"
        code = next(line for line in rest if not re.fullmatch(options, line))
        described = re.fullmatch(r"-- [A-Z].*[.?]", promise) and re.fullmatch(r"-- Called .*[.?]", callers)
        return bool(described) and not code.startswith("--")

    assert [] == bad(QUERIES, is_described)


def test_a_query_reads_no_clock_and_draws_no_random_numbers():
    """Queries take the time from the schema's clock view or a parameter, and random numbers from a parameter."""

    def is_pure(path: Path) -> bool:
        code = bare(path.read_text())
        clocks = None if path.stem in COMPARED_WITH_SERVER_TIMES else CLOCK.search(code)
        return clocks is None and RANDOM.search(code) is None

    assert [] == bad([*QUERIES, *FRAGMENTS], is_pure)


def test_only_the_clock_view_reads_the_clock():
    """In a schema and its migrations, no statement but the clock view reads the clock of the database."""

    def is_pure(path: Path) -> bool:
        readers = [statement for statement in statements(path.read_text()) if CLOCK.search(statement)]
        return all(map(CLOCK_VIEW.match, readers))

    assert [] == bad(SCHEMAS, is_pure)


def test_schemas_draw_only_the_listed_random_numbers():
    """Schemas have no random defaults; the random numbers of migrations are listed above with their reasons."""
    drawn = {name(path): found for path in SCHEMAS if (found := RANDOM.findall(bare(path.read_text())))}

    assert DRAWN_ONCE == drawn


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT now()",
        "SELECT Current_Timestamp",
        "SELECT date('now')",
        "SELECT clock_timestamp ()",
        "SELECT unixepoch()",
    ],
)
def test_the_check_finds_a_clock(statement: str):
    """These tests recognise the clock functions of both databases."""
    assert CLOCK.search(statement)


def test_the_check_ignores_columns():
    """Columns called now, and functions that only convert given instants, are not taken for clocks."""
    assert not CLOCK.search("SELECT coalesce(:now, now) AS now, known(1) FROM redrive_clock")
