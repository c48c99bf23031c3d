"""Values of arguments as tags, and searches for them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.records import Filter
from redrive.engine.search import (
    LONGEST_TAG,
    MOST_TAGS,
    Bounds,
    ValueSearch,
    has_value,
    secret_part,
    tag_of,
    tags_of,
    tags_of_all,
    whole,
)
from redrive.errors import ConfigurationError


def tags(value: object, *fields: str) -> tuple[str, ...]:
    """Return the tags of fields of arguments."""
    return tags_of(msgspec.json.encode(value), fields)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("inv-443", ("inv-443",)),
        ("  inv-443 ", ("inv-443",)),
        ("A\N{COMBINING RING ABOVE}", ("Å",)),
        (443, ("443",)),
        (12.5, ("12.5",)),
        (10**20, ("100000000000000000000",)),
        (None, ()),
        (True, ()),
        ("", ()),
        (" ", ()),
        ("a\0b", ()),
        ({"inner": "x"}, ()),
        (["a", "b", "a", None, ["c"]], ("a", "b", "c")),
    ],
)
def test_a_value_has_a_tag(value: object, expected: tuple[str, ...]):
    """Texts and numbers have one, lists have those of their members, and nothing else has any."""
    assert expected == tags({"invoice": value, "other": "y"}, "invoice")


def test_fields_are_paths():
    """A path leads through objects and lists; one that the arguments do not have has no tag."""
    order = {"order": {"id": "o-1", "lines": [{"sku": "a"}, {"sku": "b"}, {"other": 1}]}}

    assert ("o-1", "a", "b") == tags(order, "order.id", "order.lines.sku")
    assert () == tags(order, "order", "order.none", "none.id", "order.id.deeper")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("customer", "7", True),
        ("order.lines.sku", " b ", True),
        ("lines.sku", "b", True),
        ("sku", "a", True),
        ("customer", "77", False),
        ("order", "7", False),
        ("paid", "True", False),
    ],
)
def test_a_field_with_a_value_is_found_in_any_part(field: str, value: str, expected: bool):
    """Its path begins in any object, as those of a field of an event, which is a part of arguments."""
    document = b'{"event": [{"customer": 7, "paid": true, "order": {"lines": [{"sku": "a"}, {"sku": "b"}]}}], "x": 77}'

    assert expected is has_value(document, field, value)


def test_a_list_has_a_limited_number_of_tags():
    """A long list must not make an enqueue expensive."""
    assert MOST_TAGS == len(tags({"ids": list(range(1000))}, "ids"))


def test_every_value_could_be_a_tag():
    """Those of all arguments are known, to be left out where arguments are hidden."""
    assert {"a", "b", "1", "c"} == tags_of_all(b'{"x": "a", "y": ["b", 1, {"z": "c"}], "w": null}')
    assert frozenset() == tags_of_all(None)


@given(st.text(max_size=200))
def test_tags_are_short_and_stored_by_each_database(text: str):
    """A tag has at most 64 bytes, and the same value always has the same tag."""
    tag = tag_of(text)

    assert tag is None or (0 < len(tag.encode()) <= LONGEST_TAG and "\0" not in tag)
    assert tag == tag_of(text)


@pytest.mark.parametrize("letter", ["x", "ä", "\N{GRINNING FACE}"])
def test_long_values_differ_in_their_tags(letter: str):
    """Two values that begin alike have two tags, which begin like them."""
    first, second = letter * 64 + "1", letter * 64 + "2"

    assert tag_of(first) != tag_of(second)
    assert letter * 10 == (tag_of(first) or "")[:10]


def test_a_text_without_utf_8_has_no_tag():
    """Lone surrogates cannot be stored."""
    assert tag_of("a\ud800") is None


@pytest.mark.parametrize(("text", "tag"), [("inv", "inv"), ("inv*", None), ("*inv", None), ("*", None)])
def test_only_a_whole_value_has_a_tag(text: str, tag: str | None):
    """A part of a value is not in an index."""
    assert tag == ValueSearch(text).tag


def test_a_job_without_arguments_has_no_value():
    """A catch job reads the arguments of another job."""
    assert not ValueSearch("*").finds(None, ())
    assert ValueSearch("*").finds(b'{"a": "b"}', ())
    assert not ValueSearch("a").finds(b"{}", ())


@pytest.mark.parametrize(
    ("field", "part"), [("invoice", None), ("api_key", "api_key"), ("order.password", "password"), ("author", None)]
)
def test_secret_fields_are_known(field: str, part: str | None):
    """A path is secret if one of its parts is."""
    assert part == secret_part(field)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", Bounds(3, 3)),
        (">3", Bounds(least=4)),
        (">= 3", Bounds(least=3)),
        ("<3", Bounds(most=2)),
        ("<=3", Bounds(most=3)),
    ],
)
def test_comparisons_are_read(text: str, expected: Bounds):
    """A number, or an operator before it."""
    assert expected == Bounds.parse(text, whole)


@pytest.mark.parametrize("text", ["", ">", "x", "-1", "1.5", "³", "9999999999", "> >3"])
def test_what_is_no_number_is_refused(text: str):
    """The error names what would be right."""
    with pytest.raises(ConfigurationError, match="attempts: expected a number such as 3 or >3"):
        Filter(attempts=text)


@pytest.mark.parametrize(("text", "message"), [("10s", "a bound such as >10s"), (">soon", "a time such as >10s")])
def test_lengths_of_attempts_are_bounds(text: str, message: str):
    """No attempt takes a time exactly."""
    with pytest.raises(ConfigurationError, match=message):
        Filter(took=text)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ((Filter(),), "one condition each"),
        ((Filter(task="a", queue="b"),), "one condition each"),
        (("task:a",), "one condition each"),
        ((Filter(attempts=">3"),), "attempts cannot be"),
        ((Filter(without=(Filter(task="a"),)),), "without cannot be"),
    ],
)
def test_conditions_that_cannot_be_negated_are_refused(without: tuple[Filter, ...], message: str):
    """Others have an opposite of their own."""
    with pytest.raises(ConfigurationError, match=message):
        Filter(without=without)


def test_negated_conditions_are_conditions():
    """An operation with them alone means not all jobs, and they are written to the audit log."""
    wanted = Filter(without=[Filter(task="a"), Filter(state="dead")])  # type: ignore[arg-type]

    wanted.for_changes()
    assert {"without": [{"task": "a"}, {"state": "dead"}]} == wanted.conditions
    assert ["a"] == wanted.excluded("task")
    with pytest.raises(ConfigurationError, match="all=True with without"):
        Filter(all=True, without=(Filter(task="a"),))
