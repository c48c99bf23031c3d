"""What a catch request and a result are after their way through JSON."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from datetime import date, datetime
from typing import Any, NoReturn

import msgspec
import pytest

from redrive import App, CatchRequest
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
    """Return the signature of a task with the name of its function."""
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
    """Catch requests are the only argument as its type, several as a mapping, or plain JSON."""
    declared = signature(function)

    assert (expected, declared.request) == declared.read_request(declared.write((), arguments), hint)


def by_number(lines: dict[int, Line]) -> None:
    """Take a mapping with keys that are no texts."""


def defaulted(payment: Payment = Payment(1)) -> None:  # noqa: B008 - a frozen value
    """Take an argument that may be left out."""


def test_a_catch_request_reads_keys_that_are_no_texts():
    """JSON has text keys only; the request has numbers again."""
    declared = signature(by_number)
    raw = declared.write(({7: Line("nail")},), {})

    assert ({7: Line("nail")}, dict[int, Line]) == declared.read_request(raw, dict[int, Line])


def test_a_catch_request_contains_defaults():
    """If the argument was left out, the request is its default."""
    declared = signature(defaulted)

    assert (Payment(1), Payment) == declared.read_request(declared.write((), {}), Payment)


@pytest.mark.parametrize(
    ("function", "stored", "expected"),
    [
        (structs, b'{"order":{"cents":5}}', {"order": {"cents": 5}}),
        (structs, b"{}", {}),
        (structs, b'{"payment":1,"note":"x"}', {"payment": 1, "note": "x"}),
        (defaulted, b'{"order":{"cents":5}}', {"order": {"cents": 5}}),
        (keywords, b'{"order":7}', {"order": 7}),
    ],
)
def test_a_catch_task_for_any_request_gets_what_was_stored_for_other_parameters(function, stored, expected):
    """Requests of changed parameters are the stored mapping of names."""
    assert (expected, dict[str, Any]) == signature(function).read_request(stored, Any)


@pytest.mark.parametrize(
    ("stored", "why"),
    [(b'{"order":{"cents":5}}', "stored with 'order'"), (b"{}", "stored with no arguments")],
)
def test_a_request_of_other_parameters_has_no_request_type(stored, why):
    """Values that were stored under another name are not taken for the present parameter."""
    with pytest.raises(PayloadError) as refused:
        signature(structs).read_request(stored, Payment)

    expected = (
        f"the request does not match CatchRequest[Payment]: task 'structs' takes 'payment' now, and the job was {why}"
    )
    assert expected == str(refused.value)


def test_a_catch_request_that_does_not_match_is_refused_with_its_type():
    """Requests that do not match are refused with the type of the catch task."""
    with pytest.raises(PayloadError, match=r"does not match CatchRequest\[Payment\]: Expected `object`, got `int`"):
        signature(structs).read_request(b'{"payment":7}', Payment)


# ------------------------------------------------------------------------------------------------------------- results


def gives_order() -> Order:
    """Return an order."""
    return Order(1, (), AT)


def gives_anything():
    """Return what it likes."""


def gives_maybe() -> Order | None:
    """Return an order, or nothing."""


def gives_nothing() -> None:
    """Return nothing."""


def gives_numbers() -> list[float]:
    """Return numbers."""


def gives_fussy() -> Fussy:
    """Return a model with a validator that raises."""


def gives_coroutine() -> Coroutine[Any, Any, int]:
    """Return what the worker awaits."""


def never_ends() -> NoReturn:
    """Raise."""
    raise ValueError("boom")


def gives_two_structs() -> Payment | Tagless:
    """Return one of two classes that JSON cannot distinguish."""


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (gives_order, Order(1, (Line("saw"),), AT), Order(1, (Line("saw"),), AT)),
        (gives_maybe, None, None),
        (gives_nothing, None, None),
        (gives_anything, None, None),
        (gives_anything, Line("saw"), {"item": "saw", "count": 1}),
        (gives_anything, [1, "a"], [1, "a"]),
    ],
)
def test_results_are_read_by_the_return_annotation(function, value, expected):
    """Results have the annotated type; without an annotation they are plain JSON."""
    returns = Returns(signature(function))

    assert expected == returns.read(returns.check(value))


class Tagless(msgspec.Struct):
    """A second struct without a tag."""

    cents: int


class Unwritable:
    """A model that fails while it is written."""

    def model_dump(self, mode: str) -> object:
        """Fail."""
        raise KeyError("lost")


@pytest.mark.parametrize(("value", "why"), [(Opaque(), "Opaque cannot be written"), (Unwritable(), "KeyError: 'lost'")])
def test_the_error_for_an_unstorable_result_has_the_cause(value, why):
    """Whatever the serialiser raises, it is one error with its text."""
    with pytest.raises(PayloadError, match=f"the result cannot be stored: {why}"):
        Returns(signature(gives_order)).check(value)


@pytest.mark.parametrize(
    ("function", "stored", "why"),
    [
        (gives_order, b'{"number":"one"}', "the stored result does not match -> Order: Expected `int`, got `str`"),
        (gives_fussy, b'{"number":1}', "the stored result does not match -> Fussy: LookupError: no such thing"),
    ],
)
def test_a_stored_result_that_no_longer_matches_is_refused(function, stored, why):
    """Stored results that do not match are refused with the annotation and the difference."""
    with pytest.raises(PayloadError) as refused:
        Returns(signature(function)).read(stored)

    assert why in str(refused.value)


NO_NAN = " (JSON has no nan: null stands in its place)"


@pytest.mark.parametrize(
    ("function", "value", "why"),
    [
        (gives_order, None, "the result null does not match -> Order: Expected `object`, got `null`"),
        (gives_order, "one", 'the result "one" does not match -> Order: Expected `object`, got `str`'),
        (gives_nothing, 7, "the result 7 does not match -> NoneType: Expected `null`, got `int`"),
        (
            gives_numbers,
            [1.0, math.nan],
            f"the result [1.0,null] does not match -> list[float]: Expected `float`, got `null` - at `$[1]`{NO_NAN}",
        ),
        (gives_coroutine, "x" * 70, f'the result "{"x" * 59}... does not match -> int: Expected `int`, got `str`'),
    ],
)
def test_a_result_that_does_not_match_the_annotation_is_refused(function, value, why):
    """Results that do not match are refused with the annotation and the difference."""
    with pytest.raises(PayloadError) as refused:
        Returns(signature(function)).check(value)

    assert why == str(refused.value)


@pytest.mark.parametrize(("function", "value"), [(gives_coroutine, 7), (never_ends, None), (never_ends, [1])])
def test_never_and_no_return_are_not_result_annotations(function, value):
    """Annotations of coroutines and of functions that never return have no result type."""
    returns = Returns(signature(function))

    assert value == returns.read(returns.check(value))


def test_a_return_annotation_that_json_cannot_carry_is_refused_before_any_job_runs(app: App):
    """Return annotations that JSON cannot carry are refused at import."""
    with pytest.raises(
        TaskDefinitionError, match="task 'gives_two_structs': its return annotation -> .*Payment.* cannot be read"
    ):
        app.task(gives_two_structs)


def test_result_annotations_that_cannot_be_resolved_name_the_task():
    """Return annotations that cannot be resolved are an error of the task, not of the payload."""

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
        (CatchRequest[int], "redrive.app.tasks.catch.CatchRequest[int]"),
        (Any, "Any"),
    ],
)
def test_types_are_written_as_in_source_code(hint, expected):
    """Classes by their name, other forms as they are written."""
    assert expected == type_name(hint)
