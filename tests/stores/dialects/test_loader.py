"""Statements are read from files, once."""

from __future__ import annotations

from importlib import resources

import pytest

from redrive.stores import dialects
from redrive.stores.dialects import loader


def test_a_statement_has_the_name_of_its_file():
    """Every file of queries is one statement, under the name of the file, with its text where it includes none."""
    folder = resources.files(dialects) / "sqlite" / "queries"
    files = {file.name.removesuffix(".sql"): file.read_text() for file in folder.iterdir()}
    texts = loader.statements("sqlite")

    assert files.keys() == texts.keys()
    assert all(texts[name] == text for name, text in files.items() if "-- include" not in text)


def test_included_fragments_are_a_part_of_the_statement():
    """Statements that share a part include its file, and no include is left in the text."""
    shared = {
        ("postgres", "lanes.sql"): ("claim", "next_due"),
        ("postgres", "job_filter.sql"): ("jobs_select", "jobs_these"),
        ("sqlite", "job_filter.sql"): ("jobs_select", "jobs_these"),
    }
    for (dialect, part), names in shared.items():
        fragment = (resources.files(dialects) / dialect / "fragments" / part).read_text().rstrip("\n")
        assert all(fragment in loader.statements(dialect)[name] for name in names)
    left = [
        name
        for each in ("postgres", "sqlite")
        for name, text in loader.statements(each).items()
        if "-- include" in text
    ]
    assert [] == left


def test_statements_that_run_first_are_read_from_fragments():
    """Queries of SQLite that write to several tables execute one statement for each, in the order of their headers."""
    first = loader.preliminaries("sqlite")["enqueue"]

    assert ["redrive_policies", "redrive_jobs", "redrive_payloads"] == [text.split()[2] for text in first]
    assert not any(loader.preliminaries("postgres").values())


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
