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


def test_statements_are_read_once():
    """A dialect's statements are kept in memory after the first reading."""
    assert loader.statements("sqlite") is loader.statements("sqlite")
    assert loader.migrations("sqlite") is loader.migrations("sqlite")


def test_the_first_migration_is_read_from_its_file():
    """A migration knows its number, its name, its phase and its script."""
    first = loader.migrations("sqlite")[0]

    assert (1, "0001_pre_jobs", "pre") == (first.number, first.name, first.phase)
    assert first.script.startswith("-- Jobs, attempts, workers: the first schema.")


def test_an_unknown_dialect_has_no_statements():
    """A dialect that does not exist cannot be read."""
    with pytest.raises(FileNotFoundError):
        loader.statements("klingon")
