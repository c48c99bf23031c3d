"""What a catch request and a result are after their way through JSON."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from redrive import CatchRequest
from redrive.app.payload import Returns, Signature, type_name
from redrive.errors import PayloadError, TaskDefinitionError
from tests.app.samples import AT, Fussy, Line, Opaque, Order, Payment, Person


def structs(payment: Payment) -> None:
    """Take a struct."""


def models(person: Person) -> None:
    """Take a pydantic model."""


def moments(at: datetime) -> None:
    """Take an instant."""


def keywords(number: int, *, note: str = "none") -> None:
    """Take several arguments."""


def signature(function: Any) -> Signature:
    """The signature of a task that has the name of its function."""
    return Signature(function, function.__name__)


# ------------------------------------------------------------------------------------------------------ catch requests


@pytest.mark.parametrize(
    ("function", "arguments", "hint", "expected"),
    [
        (structs, {"payment": Payment(5)}, Payment, Payment(5)),
        (structs, {"payment": Payment(5)}, Any, {"cents": 5, "currency": "EUR"}),
        (keywords, {"number": 1, "note": "x"}, dict[str, Any], {"number": 1, "note": "x"}),
        (models, {"person": Person(name="A", born=date(1990, 1, 1))}, Person, Person(name="A", born=date(1990, 1, 1))),
        (moments, {"at": AT}, Any, "2026-01-02T03:04:05Z"),
    ],
)
def test_a_catch_request_has_the_type_that_was_asked_for(function, arguments, hint, expected):
    """The one argument as its type, several as a mapping, and anything as plain JSON."""
    declared = signature(function)

    assert expected == declared.read_request(declared.write((), arguments), hint)


def by_number(lines: dict[int, Line]) -> None:
    """Take a mapping whose keys are no texts."""


def defaulted(payment: Payment = Payment(1)) -> None:  # noqa: B008 - a frozen value
    """Take an argument that may be left out."""


def test_a_catch_request_reads_keys_that_are_no_texts():
    """JSON has text keys only; the request has numbers again."""
    declared = signature(by_number)
    raw = declared.write(({7: Line("nail")},), {})

    assert {7: Line("nail")} == declared.read_request(raw, dict[int, Line])


def test_a_catch_request_knows_defaults():
    """Where the argument was left out the request is its default, as it was for the task."""
    declared = signature(defaulted)

    assert Payment(1) == declared.read_request(declared.write((), {}), Payment)


def test_a_catch_request_that_does_not_fit_says_so():
    """The message names the type that the catch task asked for."""
    with pytest.raises(PayloadError, match=r"does not match CatchRequest\[Payment\]: Expected `object`, got `int`"):
        signature(structs).read_request(b'{"payment":7}', Payment)


# ------------------------------------------------------------------------------------------------------------- results


def gives_order() -> Order:
    """Return an order."""
    return Order(1, (), AT)


def gives_anything():
    """Return what it likes."""


def gives_fussy() -> Fussy:
    """Return a model whose validator raises."""


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (gives_order, Order(1, (Line("saw"),), AT), Order(1, (Line("saw"),), AT)),
        (gives_order, None, None),
        (gives_anything, Line("saw"), {"item": "saw", "count": 1}),
        (gives_anything, [1, "a"], [1, "a"]),
    ],
)
def test_results_are_read_by_the_return_annotation(function, value, expected):
    """A result has the type that the task promises; without a promise it is plain JSON."""
    returns = Returns(signature(function))

    assert expected == returns.read(returns.write(value))


class Unwritable:
    """A model that fails while it is written."""

    def model_dump(self, mode: str) -> object:
        """Fail."""
        raise KeyError("lost")


@pytest.mark.parametrize(("value", "why"), [(Opaque(), "Opaque cannot be written"), (Unwritable(), "KeyError: 'lost'")])
def test_a_result_that_cannot_be_stored_says_why(value, why):
    """Whatever the serialiser raises, it is one error with its text."""
    with pytest.raises(PayloadError, match=f"the result cannot be stored: {why}"):
        Returns(signature(gives_order)).write(value)


@pytest.mark.parametrize(
    ("function", "stored", "why"),
    [
        (gives_order, b'{"number":"one"}', "the stored result does not match -> Order: Expected `int`, got `str`"),
        (gives_fussy, b'{"number":1}', "the stored result does not match -> Fussy: LookupError: no such thing"),
    ],
)
def test_a_stored_result_that_no_longer_fits_says_so(function, stored, why):
    """The message names the annotation and what is wrong with the result."""
    with pytest.raises(PayloadError) as refused:
        Returns(signature(function)).read(stored)

    assert why in str(refused.value)


def test_result_annotations_that_cannot_be_resolved_name_the_task():
    """The mistake is the task's, so it is no error of the payload."""

    def task() -> NoSuchType:  # noqa: F821 - the subject
        """Promise a type that does not exist."""

    with pytest.raises(TaskDefinitionError, match="task 'task': its annotations cannot be resolved"):
        Returns(signature(task)).read(b"1")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Order, "Order"),
        (int, "int"),
        (list[int], "list[int]"),
        (int | None, "int | None"),
        (CatchRequest[int], "redrive.app.catch.CatchRequest[int]"),
        (Any, "Any"),
    ],
)
def test_types_are_written_as_in_source_code(hint, expected):
    """Classes by their name, other forms as they are written."""
    assert expected == type_name(hint)
