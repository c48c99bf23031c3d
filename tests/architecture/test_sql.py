"""Each statement is written for every dialect and takes the time and random numbers from outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from redrive.stores.statements import loader
from redrive.stores.statements.loader import spelled
from tests.architecture.source import PACKAGE, name

STORES = PACKAGE / "stores"
OPERATIONS = STORES / "operations"
FILES = sorted((STORES / "statements").glob("*.sql"))
SCHEMAS = sorted(STORES.glob("migrations/*/*.sql"))
DIALECTS = sorted({path.parent.name for path in SCHEMAS})


class Block(NamedTuple):
    """A named block of a file of statements."""

    module: str  # the name of its file
    kind: str  # name or fragment
    name: str
    head: list[str]  # its comment lines before the texts
    texts: dict[str, str]


def read(path: Path) -> list[Block]:
    """Return the blocks of a file of statements."""
    blocks = []
    for text in re.split(r"(?m)^(?=-- (?:name|fragment): )", path.read_text())[1:]:
        head, *parts = re.split(r"(?m)^-- (both|postgres|sqlite)$", text)
        first, *rest = head.splitlines()
        kind, named = first.removeprefix("-- ").split(": ")
        blocks.append(Block(path.stem, kind, named, rest, dict(zip(parts[::2], parts[1::2], strict=True))))
    return blocks


BLOCKS = [block for path in FILES for block in read(path)]

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
    "src/redrive/stores/migrations/postgres/0001_pre_schema.sql": ["gen_random_uuid("],
    "src/redrive/stores/migrations/sqlite/0001_pre_schema.sql": ["randomblob("],
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


def module(path: Path) -> str:
    """Return the name of the file of statements of a module of operations."""
    return "_".join(path.relative_to(OPERATIONS).with_suffix("").parts)


def yielded() -> dict[str, list[str]]:
    """Return the names of all queries, each with the modules that yield it; a computed name is ``?``."""
    found: dict[str, list[str]] = {}
    for path in sorted(OPERATIONS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Query":
                first = node.args[0] if node.args else None
                query = first.value if isinstance(first, ast.Constant) else "?"
                found.setdefault(str(query), []).append(module(path))
    return found


def taken() -> set[str]:
    """Return the names of the statements that the migrator runs itself, before a schema exists."""
    nodes = ast.walk(ast.parse((PACKAGE / "stores" / "migrate.py").read_text()))
    keys = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_operations_name_their_queries_literally():
    """Operations never compute the name of a query, so that a search finds each use of a statement."""
    assert "?" not in yielded()


def test_exactly_the_queries_that_are_run_have_a_statement_in_each_dialect():
    """Statements of each dialect have the names that operations yield and the migrator runs."""
    run = yielded().keys() | taken()

    assert [run, run] == [loader.statements(dialect).keys() for dialect in DIALECTS]


def test_a_name_is_given_once():
    """No two statements or fragments have the same name: a search for one finds it."""
    names = [block.name for block in BLOCKS]

    assert [] == sorted({each for each in names if names.count(each) > 1})


def test_a_statement_stands_in_the_file_of_a_module_that_yields_it():
    """Statements of ``operations/runs/steps.py`` stand in ``runs_steps.sql``, and the migrator's in ``schema.sql``."""
    modules = yielded() | {each: ["schema"] for each in taken()}

    assert [] == bad([each for each in BLOCKS if each.kind == "name"], lambda each: each.module in modules[each.name])


COMPARED_WITH_SERVER_TIMES = {"stuck_end"}
"""Queries that compare the time with instants that the server itself has written, such as those of pg_stat_activity."""


def test_at_least_one_dialect_exists():
    """This module finds dialects and operations to check."""
    assert {"postgres", "sqlite"} == set(DIALECTS)
    assert BLOCKS


def bad(blocks: Iterable[Block], is_good: Callable[[Block], object]) -> list[str]:
    """Return the names of the blocks that are not good."""
    return [f"{block.module}.sql: {block.name}" for block in blocks if not is_good(block)]


def test_a_block_has_one_text_for_both_dialects_or_one_for_each():
    """A statement is written once, or for each dialect; a fragment may be needed by one dialect only."""

    def is_whole(block: Block) -> bool:
        alone = block.kind == "fragment" and len(block.texts) == 1
        return alone or block.texts.keys() in ({"both"}, set(DIALECTS))

    assert [] == bad(BLOCKS, is_whole)


def test_a_fragment_is_used():
    """Each fragment is a part of a statement, or runs before one."""
    lines = {line for block in BLOCKS for text in (*block.head, *block.texts.values()) for line in text.splitlines()}

    assert [] == bad(
        [block for block in BLOCKS if block.kind == "fragment"],
        lambda block: {f"-- include {block.name}", f"-- first: {block.name}"} & lines,
    )


def test_a_text_of_both_dialects_is_not_spelled_differently_within_a_literal():
    """The rules of spelling do not know literals, so no literal of a text of both dialects contains what they match."""
    literals = {
        literal: block.name
        for block in BLOCKS
        for literal in re.findall(r"'[^']*'", bare(block.texts.get("both", "")))
        if spelled(literal, "sqlite") != literal
    }

    assert {} == literals


def test_a_statement_is_one():
    """Texts hold one statement, without a semicolon that would allow a second one."""

    def is_one(block: Block) -> bool:
        codes = [bare(text).strip().removesuffix(";") for text in block.texts.values()]
        return all(len(statements(code)) == 1 and ";" not in code for code in codes)

    assert [] == bad(BLOCKS, is_one)


def test_a_block_states_its_result():
    """Blocks begin with sentences on what the statement returns or does; its headers follow."""
    header = r"-- (?:(?:transaction|rows|many|first): \w+)"

    def is_described(block: Block) -> bool:
        text = " ".join(line.removeprefix("-- ") for line in block.head if not re.fullmatch(header, line))
        heads = [bool(re.fullmatch(header, line)) for line in block.head]
        return heads == sorted(heads) and bool(re.fullmatch(r"[A-Z].*[.?]", text))

    assert [] == bad(BLOCKS, is_described)


def test_a_query_reads_no_clock_and_draws_no_random_numbers():
    """Queries take the time from the schema's clock view or a parameter, and random numbers from a parameter."""

    def is_pure(block: Block) -> bool:
        code = bare("\n".join(block.texts.values()))
        clocks = None if block.name in COMPARED_WITH_SERVER_TIMES else CLOCK.search(code)
        return clocks is None and RANDOM.search(code) is None

    assert [] == bad(BLOCKS, is_pure)


def test_only_the_clock_view_reads_the_clock():
    """In a schema and its migrations, no statement but the clock view reads the clock of the database."""

    def is_pure(path: Path) -> bool:
        readers = [statement for statement in statements(path.read_text()) if CLOCK.search(statement)]
        return all(map(CLOCK_VIEW.match, readers))

    assert [] == [name(path) for path in SCHEMAS if not is_pure(path)]


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
