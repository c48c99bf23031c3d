"""Arguments as JSON: read back by the annotations, or refused at the enqueue."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest

from redrive import App, Context
from redrive.app.payload import Signature
from redrive.errors import PayloadError, TaskDefinitionError
from tests.app.samples import (
    AT,
    Address,
    CheckedNumber,
    Circle,
    Colour,
    Fussy,
    Level,
    Line,
    Opaque,
    Order,
    Payment,
    Person,
    Square,
)


def dataclasses_(order: Order) -> None:
    """Take a dataclass."""


def structs(payment: Payment) -> None:
    """Take a struct."""


def dicts(address: Address) -> None:
    """Take a typed dict."""


def models(person: Person) -> None:
    """Take a pydantic model."""


def maybe_models(person: Person | None = None) -> None:
    """Take a pydantic model, or nothing."""


def enums(colour: Colour, level: Level) -> None:
    """Take enums."""


def times(at: datetime, day: date, span: timedelta) -> None:
    """Take times."""


def numbers(price: Decimal, share: float, count: int) -> None:
    """Take numbers."""


def names(key: uuid.UUID, raw: bytes, kind: Literal["a", "b"]) -> None:
    """Take what JSON has text for."""


def unions(shape: Circle | Square, note: str | None) -> None:
    """Take one of several."""


def collections(names: set[str], by_id: dict[int, Line]) -> None:
    """Take collections of typed items."""


def keywords(number: int, *, note: str = "none") -> None:
    """Take a keyword-only argument with a default."""


def nothing() -> None:
    """Take nothing."""


def anything(value) -> None:
    """Take what it gets."""


def open_dict(value: dict[str, Any]) -> None:
    """Take a dict of anything."""


def open_list(value: list) -> None:
    """Take a list of anything."""


def texts(value: str) -> None:
    """Take a text."""


def integers(value: int) -> None:
    """Take a whole number."""


def opaques(value: Opaque) -> None:
    """Take a value that cannot be read from JSON."""


def orders(order: Order) -> None:
    """Take an order."""


def careful(value: CheckedNumber) -> None:
    """Take a value of a class that raises."""


def fussy(value: Fussy) -> None:
    """Take a model with a validator that raises."""


def signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a task with the name of its function."""
    return Signature(function, function.__name__)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (dataclasses_, {"order": Order(1, (Line("nail", 100), Line("saw")), AT, notes={"to": "Ann"})}),
        (structs, {"payment": Payment(250)}),
        (dicts, {"address": {"street": "Main", "number": 7}}),
        (models, {"person": Person(name="Ann", born=date(1990, 5, 17))}),
        (maybe_models, {"person": Person(name="Ann", born=date(1990, 5, 17))}),
        (maybe_models, {"person": None}),
        (enums, {"colour": Colour.RED, "level": Level.HIGH}),
        (times, {"at": AT, "day": date(2026, 1, 2), "span": timedelta(days=1, seconds=1.5)}),
        (numbers, {"price": Decimal("9.90"), "share": 0.25, "count": 2**70}),
        (names, {"key": uuid.UUID(int=7), "raw": b"\x00\xff", "kind": "b"}),
        (unions, {"shape": Square(2.0), "note": None}),
        (collections, {"names": {"a", "b"}, "by_id": {7: Line("nail")}}),
        (keywords, {"number": 1, "note": "fragile"}),
        (anything, {"value": {"a": [1, 2.5, None, True, "ä"]}}),
        (open_dict, {"value": {"a": [1, {"b": None}]}}),
        (texts, {"value": ""}),
        (nothing, {}),
    ],
)
def test_arguments_arrive_as_they_were_given(function, arguments):
    """Arguments that match their annotations arrive equal and of the same type."""
    arrived = signature(function).read(signature(function).write((), arguments))

    assert arguments == arrived
    assert [type(value) for value in arguments.values()] == [type(value) for value in arrived.values()]


def test_arguments_may_be_given_by_position():
    """Positional arguments are stored by name, like keyword arguments."""
    assert {"number": 7, "note": "x"} == signature(keywords).read(signature(keywords).write((7,), {"note": "x"}))


def test_a_default_is_not_stored():
    """Arguments that are left out get the default of the code that runs the job."""
    assert b'{"number":7}' == signature(keywords).write((7,), {})
    assert {"number": 7} == signature(keywords).read(b'{"number":7}')


@pytest.mark.parametrize(
    ("function", "value", "place"),
    [
        (
            integers,
            "seven",
            "integers: the arguments do not match the annotations: Expected `int`, got `str` - at `$.value`",
        ),
        (integers, None, "Expected `int`, got `null` - at `$.value`"),
        (
            orders,
            {"number": 1, "lines": [{"item": 3}], "at": AT},
            "Expected `str`, got `int` - at `$.order.lines[0].item`",
        ),
        (orders, {"number": 1, "lines": []}, "Object missing required field `at` - at `$.order`"),
        (careful, {"number": -1}, "careful: the arguments do not match the annotations: ArithmeticError: negative"),
        (fussy, {"number": 1}, "fussy: the arguments do not match the annotations: LookupError: no such thing"),
        (texts, b"abc", "texts: argument 'value' would not arrive as it is: b'abc' becomes 'YWJj'"),
        (texts, AT, "annotate it with what it is"),
        (integers, float("nan"), "Expected `int`, got `null`"),
        (integers, float("nan"), "got `null` - at `$.value` (JSON has no nan: null stands in its place)"),
    ],
)
def test_an_argument_that_does_not_match_is_refused(function, value, place):
    """Arguments that do not match are refused with the task, the place and the expected type."""
    with pytest.raises(PayloadError) as refused:
        signature(function).write((value,), {})

    assert place in str(refused.value)
    assert str(refused.value).startswith(f"{function.__name__}: ")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            Opaque(),
            "anything: argument 'value': Opaque cannot be written as JSON: use a dataclass, a struct, a TypedDict",
        ),
        (print, "anything: argument 'value': print can be called, and cannot be written as JSON: pass its name"),
        ("\ud800", "anything: argument 'value': 'utf-8' codec can't encode character"),
        (AT, "becomes '2026-01-02T03:04:05Z'"),
        ({1: "a"}, "anything: argument 'value' would not arrive as it is: {1: 'a'} becomes {'1': 'a'}"),
        ((1, 2), "(1, 2) becomes [1, 2]"),
        ({1}, "{1} becomes [1]"),
        (Colour.RED, "<Colour.RED: 'red'> becomes 'red'"),
        (Line("nail"), "Line(item='nail', count=1) becomes {'item': 'nail', 'count': 1}"),
        (Person(name="Ann", born=date(1990, 5, 17)), "becomes {'name': 'Ann', 'born': '1990-05-17'}"),
        (float("nan"), "nan becomes None"),
    ],
)
def test_a_value_without_annotation_must_survive_json(value, why):
    """Values that JSON cannot write or would change are refused with the advice to annotate them."""
    with pytest.raises(PayloadError) as refused:
        signature(anything).write((value,), {})

    assert why in str(refused.value)


@pytest.mark.parametrize(("function", "value"), [(open_dict, {"at": AT}), (open_list, [AT]), (open_dict, {"a": (1,)})])
def test_values_of_open_annotations_must_survive_json(function, value):
    """Datetimes inside ``dict[str, Any]`` or ``list`` are refused, because they would arrive as text."""
    with pytest.raises(PayloadError, match="would not arrive as it is"):
        signature(function).write((value,), {})


def test_a_long_value_is_cut_in_the_message():
    """Messages show only the beginning of a long value."""
    with pytest.raises(PayloadError) as refused:
        signature(anything).write((("x" * 1_000_000,),), {})

    assert 400 > len(str(refused.value))


def test_a_value_that_contains_itself_is_refused():
    """Values that contain themselves are refused."""
    cycle: list[Any] = []
    cycle.append(cycle)

    with pytest.raises(PayloadError, match="anything: argument 'value': RecursionError"):
        signature(anything).write((cycle,), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((1, 2, 3), {}, r"keywords: takes 2 arguments \(number, note\), got 3"),
        ((1,), {"number": 2}, "keywords: argument 'number' is given twice"),
        ((1,), {"colour": 2}, "keywords: argument 'colour' is unknown; parameters: number, note"),
        ((), {}, "keywords: argument 'number' is missing"),
    ],
)
def test_a_call_that_does_not_fit_the_parameters_is_refused(args, kwargs, why):
    """Too many, twice, unknown and missing arguments are each named."""
    with pytest.raises(PayloadError, match=why):
        signature(keywords).write(args, kwargs)


@pytest.mark.parametrize("bad", [Opaque(), "seven"])
def test_a_refused_argument_enqueues_no_job(app: App, bad):
    """Refused calls enqueue no job."""
    task = app.task(integers)

    with pytest.raises(PayloadError, match="integers: "):
        task.enqueue(bad)

    assert () == app.jobs.select()


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (b'{"value":"seven"}', "Expected `int`, got `str` - at `$.value`"),
        (b"{}", "argument 'value' is missing"),
        (b"{", "Input data was truncated"),
        (b"7", "Expected `object`, got `int`"),
    ],
)
def test_stored_arguments_are_read_under_the_present_annotations(stored, why):
    """Jobs from before a change of the annotations fail at execution with the difference."""
    with pytest.raises(PayloadError) as refused:
        signature(integers).read(stored)

    assert why in str(refused.value)


def test_a_class_that_json_cannot_carry_is_named():
    """Classes that cannot be read from JSON are refused by name."""
    with pytest.raises(PayloadError, match="Opaque cannot be read from JSON: use a dataclass, a struct, a TypedDict"):
        signature(opaques).read(b'{"value":{}}')


def test_an_unknown_stored_argument_is_refused():
    """Code that does not know an argument must not run without it: it may be older than the caller."""
    with pytest.raises(PayloadError, match="the arguments do not match the annotations: .*unknown field `old`"):
        signature(integers).read(b'{"value":1,"old":true}')


def odd_names(__x: int, self: int, cls: int = 3) -> None:  # noqa: PYI063 - the subject
    """Take parameters with names that are special elsewhere."""


def test_any_parameter_name_can_be_stored():
    """Parameters may have any name."""
    declared = signature(odd_names)

    assert {"__x": 1, "self": 2} == declared.read(declared.write((1, 2), {}))


# ----------------------------------------------------------------------------------------------------------- signatures


def with_context(number: int, context: Context) -> None:
    """Take a context."""


def star(*numbers: int) -> None:
    """Take any number of arguments."""


def stars(**numbers: int) -> None:
    """Take any arguments."""


def positional(number: int, /) -> None:
    """Take an argument without a name."""


def unresolved(value: NoSuchType) -> None:  # noqa: F821 - the subject
    """Name a type that does not exist."""


def misspelt(value: datetime.Instant) -> None:
    """Name an attribute that does not exist."""


def nonsense(value: "1 | int") -> None:  # noqa: UP037 - the subject
    """Name something that is no type."""


def test_the_context_is_no_part_of_the_payload():
    """Parameters annotated with Context are filled by the worker and never stored."""
    assert ("number",) == signature(with_context).payload
    assert "context" == signature(with_context).context
    assert b'{"number":1}' == signature(with_context).write((1,), {})


@pytest.mark.parametrize("function", [star, stars, positional])
def test_parameters_without_names_cannot_be_stored(function):
    """``*args``, ``**kwargs`` and positional-only parameters are refused at registration."""
    with pytest.raises(TaskDefinitionError, match=f"task '{function.__name__}': parameter .* cannot be part of a job"):
        signature(function)


@pytest.mark.parametrize("function", [unresolved, misspelt, nonsense])
def test_annotations_that_cannot_be_resolved_name_the_task(function):
    """Errors of annotations name the task."""
    with pytest.raises(TaskDefinitionError, match=f"task '{function.__name__}': its annotations cannot be resolved"):
        signature(function).write((1,), {})
