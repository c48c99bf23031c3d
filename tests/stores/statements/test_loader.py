"""Statements are read from files, once."""

from __future__ import annotations

import pytest

from redrive.stores.statements import loader


def test_a_statement_has_the_text_of_its_dialect():
    """A statement that is written for each dialect has the text under the name of the dialect, without its head."""
    texts = [loader.statements(dialect)["heartbeat"] for dialect in ("postgres", "sqlite")]

    assert all(text.startswith("UPDATE redrive_workers ") and text.endswith("\nRETURNING id") for text in texts)
    assert ["greatest(" in text for text in texts] == ["max(" not in text for text in texts] == [True, False]


def test_a_text_of_both_dialects_is_spelled_as_each_needs_it():
    """A statement that is written once has PostgreSQL's text there, and the spelling of SQLite there."""
    texts = [loader.statements(dialect)["meta"] for dialect in ("postgres", "sqlite")]

    assert ["key = :key::text", "key = :key"] == [text.partition("WHERE ")[2] for text in texts]


def test_included_fragments_are_a_part_of_the_statement():
    """Statements that share a part include its block, and no include is left in the text."""
    shared = {
        ("postgres", "WITH RECURSIVE cursor_of AS"): ("claim", "next_due"),
        ("postgres", "(:state::text IS NULL OR state = :state)"): ("jobs_select", "jobs_these"),
        ("sqlite", "(:state IS NULL OR state = :state)"): ("jobs_select", "jobs_these"),
    }
    for (dialect, part), names in shared.items():
        assert all(part in loader.statements(dialect)[name] for name in names)
    left = [
        name
        for each in ("postgres", "sqlite")
        for name, text in loader.statements(each).items()
        if "-- include" in text
    ]
    assert [] == left


def test_statements_that_run_first_are_read_from_fragments():
    """Queries of SQLite that write to several tables execute one statement for each, in the order of their headers."""
    first = loader.preliminaries()["enqueue"]

    assert ["redrive_policies", "redrive_jobs", "redrive_payloads"] == [text.split()[2] for text in first]
    assert loader.preliminaries().keys() == loader.statements("sqlite").keys()


def test_headers_of_a_statement_are_read_for_the_driver_that_needs_them():
    """Headers declare how a driver may execute a statement; most statements have none."""
    assert {"transaction": "own"} == loader.headers("postgres")["claim"]
    assert {"many": "pairs"} == loader.headers("sqlite")["payload_insert"]
    assert {"transaction": "last"} == loader.headers("postgres")["payload_insert"]
    assert {} == loader.headers("sqlite")["clock"]


def test_each_sqlite_statement_that_returns_rows_for_many_declares_it():
    """Statements without the header are executed for many parameters at once, and their rows are not read."""
    kinds = {each["many"] for each in loader.headers("sqlite").values() if "many" in each}

    assert {"rows", "pairs"} == kinds


def test_statements_are_read_once():
    """Statements of a dialect are read from disk once."""
    assert loader.statements("sqlite") is loader.statements("sqlite")
    assert loader.headers("sqlite") is loader.headers("sqlite")


def test_an_unknown_dialect_has_no_statements():
    """Loading an unknown dialect raises an error."""
    with pytest.raises(KeyError, match="klingon"):
        loader.statements("klingon")
