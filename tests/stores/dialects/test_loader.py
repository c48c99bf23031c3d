"""Statements are read from files, once."""

from __future__ import annotations

from importlib import resources

import pytest

from redrive.stores import dialects
from redrive.stores.dialects import loader


def test_a_statement_has_the_name_of_its_file():
    """Every file of queries is one statement, under the name of the file, with its text."""
    folder = resources.files(dialects) / "sqlite" / "queries"
    files = {file.name.removesuffix(".sql"): file.read_text() for file in folder.iterdir()}

    assert files == loader.statements("sqlite")


def test_included_fragments_are_a_part_of_the_statement():
    """Statements that share a part include its file, and no include is left in the text."""
    texts = loader.statements("postgres")
    fragment = (resources.files(dialects) / "postgres" / "fragments" / "lanes.sql").read_text().rstrip("\n")

    assert all(fragment in texts[name] for name in ("claim", "next_due"))
    assert not [name for name, text in texts.items() if "-- include" in text]


def test_headers_of_a_statement_are_read_from_its_file():
    """Headers declare how a driver may execute a statement; most statements have none."""
    assert {"transaction": "own"} == loader.headers("postgres")["claim"]
    assert {"many": "pairs"} == loader.headers("sqlite")["payload_insert"]
    assert {} == loader.headers("sqlite")["clock"]


def test_each_sqlite_statement_that_returns_rows_for_many_declares_it():
    """Statements without the header are executed for many parameters at once, and their rows are not read."""
    kinds = {each["many"] for each in loader.headers("sqlite").values() if "many" in each}

    assert {"rows", "pairs"} == kinds


def test_statements_are_read_once():
    """Statements of a dialect are read from disk once."""
    assert loader.statements("sqlite") is loader.statements("sqlite")
    assert loader.migrations("sqlite") is loader.migrations("sqlite")


def test_the_first_migration_is_read_from_its_file():
    """Migrations have a number, a name, a phase and a script."""
    first = loader.migrations("sqlite")[0]

    assert (1, "0001_pre_jobs", "pre") == (first.number, first.name, first.phase)
    assert first.script.startswith("-- The first schema.")


def test_an_unknown_dialect_has_no_statements():
    """Loading an unknown dialect raises an error."""
    with pytest.raises(FileNotFoundError):
        loader.statements("klingon")
