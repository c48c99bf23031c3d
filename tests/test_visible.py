"""Tests of the escaping of foreign text."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.visible import hanging, visible

BIDIRECTIONAL = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = "\u061c\u200e\u200f"

ANY = st.text(st.characters())


def acts(char: str) -> bool:
    """Return True if a character has an effect beyond its glyph, by the Unicode database."""
    kind = unicodedata.category(char)
    return kind in {"Cc", "Zl", "Zp", "Cs"} or unicodedata.bidirectional(char) in BIDIRECTIONAL or char in MARKS


def test_every_character_that_acts_is_escaped_and_no_other_one():
    """Control characters, separators, surrogates and bidirectional controls, as the Unicode database has them."""
    every = [chr(number) for number in range(0x110000)]
    changed = {char for char in every if visible(char) != char}

    assert {char for char in every if acts(char)} | {"\ufffe", "\uffff"} == changed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve \u200dدكتور 👩‍💻", "naïve \u200dدكتور 👩‍💻"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[2J\x9b\x7f", "\\u001b[2J\\u009b\\u007f"),
        ("\u202eevil\u2069\u2028", "\\u202eevil\\u2069\\u2028"),
        ("C:\\new", "C:\\new"),
    ],
)
def test_the_escapes_are_those_of_json(text: str, shown: str):
    """Letters, emoji and backslashes stay; the rest is written as JSON would."""
    assert shown == visible(text)


@given(ANY)
def test_escaping_is_idempotent(text: str):
    """Escaped text stays unchanged when it is escaped again."""
    assert visible(text) == visible(visible(text))
    assert hanging(text) == hanging(hanging(text))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_document_stays_the_same(text: str):
    """JSON that is made visible is read as what it was."""
    assert [text] == json.loads(visible(json.dumps([text], ensure_ascii=False)))


@given(ANY)
def test_no_line_after_the_first_begins_at_the_margin(text: str):
    """So it cannot pass for an entry of a log, or for an error of its own."""
    first, *rest = hanging(text).split("\n")

    assert all(not line or line.startswith("    ") for line in rest)
    assert not any(map(acts, first + "".join(rest)))


def test_lines_that_are_indented_stay_in_line():
    """Carets of syntax errors stay under the fault."""
    assert "no unit\n    5 1y\n      ^ s" == hanging("no unit\n    5 1y\n      ^ s")
    assert "no unit\n    5 1y\n     ^" == hanging("no unit\n5 1y\n ^")
