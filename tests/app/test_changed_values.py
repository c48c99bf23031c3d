"""Values that JSON would change: events, data of machines, arguments, signals and values of runs refuse them alike."""

from __future__ import annotations

import math
import typing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from redrive import App, Flow
from redrive.app.payload import Returns, Signature
from redrive.app.types import change, may_change, may_lose
from redrive.errors import PayloadError, ResultTooLarge
from redrive.testing import VirtualClock, drain

T = TypeVar("T")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Colour(Enum):
    """A class of values that JSON writes as text."""

    RED = "red"


@dataclass
class Line:
    """A part of an event."""

    item: Any = "nail"


@dataclass
class Order:
    """An event."""

    note: Any = None
    price: float | None = 1.0
    picture: bytes = b"png"
    tags: set[int] = field(default_factory=lambda: {1})
    at: datetime = AT
    colour: Colour = Colour.RED
    lines: list[Line] = field(default_factory=list)


class Typed(TypedDict):
    """One without a class of its own."""

    note: Any
    count: int


class Struct(msgspec.Struct, eq=False):
    """One whose objects are never equal."""

    note: Any
    count: int = 1


class Model(pydantic.BaseModel):
    """One of pydantic."""

    note: Any


class Pair(NamedTuple):
    """A named tuple."""

    note: Any
    count: int = 1


class Odd:
    """A value that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


BAD = [
    (Order(note=math.nan), "note: nan becomes None; JSON has no such number"),
    (Order(price=math.inf), "price: inf becomes None; JSON has no such number"),
    (Order(note=b"ab"), "note: b'ab' becomes 'YWI='; annotate it with what it is"),
    (Order(note={1}), "note: {1} becomes [1]"),
    (Order(note=[{"a": {1}}]), "note[0]['a']: {1} becomes [1]"),
    (Order(note={1: 2}), "note: {1: 2} becomes {'1': 2}"),
    (Order(note=Line()), "note: Line(item='nail') becomes {'item': 'nail'}"),
    (Order(lines=[Line(), Line(AT)]), "lines[1].item: datetime.datetime(2026"),
]


@pytest.fixture
def app():
    """Yield an app in memory with a virtual clock."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


def by_topic(app: App, order: Order) -> None:
    """Publish it."""
    app.topic("orders", Order).publish(order)


def by_topic_as_one_of_many(app: App, order: Order) -> None:
    """Publish it with others."""
    app.topic("orders", Order).publish_many([Order(), order])


def by_job(app: App, order: Order) -> None:
    """Enqueue it."""

    @app.task
    def charge(order: Order) -> None:
        """Do nothing."""

    charge.enqueue(order)


def by_machine(app: App, order: Order) -> None:
    """Send it."""
    machine = app.machine("orders")

    @machine.start
    def placed(event: Order) -> None:
        """Do nothing."""

    machine.send("o-1", order)


def by_step(app: App, order: Order) -> None:
    """Call a step with it."""
    refused: list[Exception] = []

    def charge(order: Order) -> None:
        """Do nothing."""

    @app.workflow()
    async def book(flow: Flow) -> None:
        try:
            await flow.step(charge, order)
        except PayloadError as error:
            refused.append(error)

    book.start(id="o-1")
    drain(app)
    if refused:
        raise refused[0]


PLACES = [by_topic, by_topic_as_one_of_many, by_job, by_machine, by_step]


@pytest.mark.parametrize(("order", "why"), BAD, ids=[why[:20] for _, why in BAD])
@pytest.mark.parametrize("place", PLACES)
def test_a_field_that_json_would_change_is_refused(app: App, place, order, why):
    """The call is refused, and the message names the field, its value and what would arrive."""
    with pytest.raises(PayloadError, match="would not arrive as it is") as refused:
        place(app, order)

    assert why in str(refused.value)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("note", [None, {"a": [1, 2.5, None, True, "x"]}, 2**60])
def test_fields_that_json_keeps_are_taken(app: App, place, note):
    """Plain values, and those of annotated classes, arrive as they are."""
    place(app, Order(note=note, price=None, lines=[Line()]))


def test_a_step_takes_a_mapping_of_numbers(app: App):
    """Its keys are numbers again, and equal mappings have equal JSON, whatever their order."""
    counts = []

    @app.workflow()
    async def book(flow: Flow) -> None:
        def count(parcels: dict[int, int]) -> None:
            counts.append(parcels)

        await flow.step(count, {2: 1, 1: 1})

    book.start(id="o-1")
    drain(app)

    assert [{1: 1, 2: 1}] == counts


def test_data_of_a_machine_are_refused_alike(app: App):
    """Data that a machine would read as other data are not written."""
    machine = app.machine("orders", data=Order)

    @machine.start
    def placed(event: Line) -> None:
        """Do nothing."""

    with pytest.raises(PayloadError, match="would not arrive as they are: note: nan becomes None"):
        machine.codec.write(Order(note=math.nan))
    assert Order() == machine.codec.read(machine.codec.write(Order()))


@pytest.mark.parametrize(
    ("kind", "before", "after", "expected"),
    [
        (Typed, {"note": {1}, "count": 1}, {"note": [1], "count": 1}, "['note']: {1} becomes [1]"),
        (Struct, Struct({1}), Struct([1]), "note: {1} becomes [1]"),
        (Struct, Struct(1), Struct(1), None),
        (Model, Model(note={1}), Model(note=[1]), "note: {1} becomes [1]"),
        (Pair, Pair({1}), Pair([1]), "note: {1} becomes [1]"),
        (dict[str, Line], {"a": Line({1})}, {"a": Line([1])}, "['a'].item: {1} becomes [1]"),
        (list[int], (1, 2), [1, 2], None),
        (Decimal, Decimal("1.50"), Decimal("1.5"), None),
        (list[float | None], [math.nan], [None], "[0]: nan becomes None"),
        (Any, Odd(), Odd(), "object"),
    ],
)
def test_the_place_of_a_change_is_found(kind, before, after, expected):
    """Fields with a class of their own may be converted, and those that leave it open may not."""
    found = change(kind, before, after)

    assert (expected is None) == (found is None)
    assert expected is None or expected in str(found)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(int, False), (Line, True), (list[Line], True), (bytes, False), (float, False), (float | None, True), (Odd, True)],
)
def test_only_open_annotations_are_compared(kind, expected):
    """A task with precise annotations spends no time on a comparison."""
    assert expected is may_change(kind)


# ------------------------------------------------------------------------------------- values that only a reader types

UNREADABLE = [math.nan, [math.inf], b"ab", {"a": {1}}, (frozenset({1}),), Line({1}), Line([b"ab"])]


@pytest.mark.parametrize("value", UNREADABLE, ids=repr)
def test_a_signal_that_no_class_can_read_is_refused(app: App, value):
    """Signals and events outside of topics have no class, and are refused if they would change for every reader."""

    @app.workflow()
    async def book(flow: Flow) -> None:
        await flow.wait_for("paid")

    run = book.start(id="o-1")
    for call in (lambda: run.signal("paid", value), lambda: app.emit("paid", value)):
        with pytest.raises(PayloadError, match=r"the value would not arrive as it is: .* becomes"):
            call()


@pytest.mark.parametrize("value", [None, 1.5, "text", [1, {"a": None}], Order(), AT, Colour.RED, (1, 2)], ids=repr)
def test_a_signal_of_a_class_is_taken(app: App, value):
    """The class of a dataclass, a time or an enumeration is named by the reader."""

    @app.workflow()
    async def book(flow: Flow) -> None:
        await flow.wait_for("paid")

    assert book.start(id="o-1").signal("paid", value)
    assert app.emit("paid", value)


def run_of(app: App, *values: tuple[str, Any]) -> tuple[list[Exception], dict[str, Any]]:
    """Return the errors of ``flow.set``, and the values of the run."""
    refused: list[Exception] = []

    @app.workflow()
    async def book(flow: Flow) -> None:
        for name, value in values:
            try:
                flow.set(name, value)
            except (PayloadError, ResultTooLarge) as error:
                refused.append(error)

    run = book.start(id="o-1")
    drain(app)
    return refused, run.values()


@pytest.mark.parametrize("value", UNREADABLE, ids=repr)
def test_a_value_of_a_run_that_no_class_can_read_is_refused(app: App, value):
    """`flow.set` raises, and the value before it is kept."""
    refused, values = run_of(app, ("state", "before"), ("state", value))

    assert [PayloadError] == [type(error) for error in refused]
    assert {"state": "before"} == values


def test_values_of_a_run_have_the_limit_of_a_result(app: App):
    """All values together are at most 1 MiB: the last one is refused, and a shorter one may replace one before it."""
    half = "x" * 600_000
    refused, values = run_of(app, ("a", half), ("b", half), ("a", "short"), ("b", half), ("c", 2 * half))

    assert [ResultTooLarge, ResultTooLarge] == [type(error) for error in refused]
    assert "flow.set('b', ...): the values of the run would have 1,200,0" in str(refused[0])
    assert {"a": "short", "b": half} == values


# ------------------------------------------------------------------------------------ more than the annotation reads


@dataclass
class Bulky(Order):
    """A subclass of an event."""

    weight: int = 7


@dataclass(frozen=True)
class Item:
    """A member of a set."""

    name: str
    count: int = 1


class Lean(msgspec.Struct, omit_defaults=True):
    """One that writes no defaults."""

    note: str = ""
    count: int = 0


class LeanMore(Lean):
    """A subclass."""

    more: int = 0


class More(Struct):
    """A subclass."""

    more: int = 0


class MoreModel(Model):
    """A subclass."""

    more: int = 0


class Alias(pydantic.BaseModel):
    """A model whose members have other names in JSON."""

    note: int = pydantic.Field(alias="Note")


class Outer(pydantic.BaseModel):
    """A model with one in it."""

    inside: list[Alias] = []
    next: Outer | None = None


class Plain(pydantic.BaseModel):
    """A model without aliases, which has itself in it."""

    inside: list[Model] = []
    next: Plain | None = None


class Hidden(pydantic.BaseModel):
    """A model with a member that it reads and does not write."""

    note: int
    secret: int = pydantic.Field(1, exclude=True)


class Renamed(pydantic.BaseModel):
    """A model that reads a former name of its member."""

    note: int

    @pydantic.model_validator(mode="before")
    @classmethod
    def former(cls, value: Any) -> Any:
        """Return the members under their present names."""
        return {"note": value["old"]} if "old" in value else value


class Boxed(pydantic.BaseModel):
    """A model that writes itself."""

    note: int

    @pydantic.model_serializer
    def box(self) -> dict[str, int]:
        """Return a document that another name has."""
        return {"box": self.note}


class Checked(pydantic.BaseModel):
    """A model with a validator that sees the model."""

    note: int

    @pydantic.model_validator(mode="after")
    def check(self) -> Checked:
        """Return the model."""
        return self


@attrs.define
class Cached:
    """A class whose instances msgspec writes with what is cached in them."""

    note: int = 1

    @cached_property
    def twice(self) -> int:
        """Return a number."""
        return 2 * self.note


@attrs.define
class CachedMore(Cached):
    """A subclass."""

    more: int = 0


class Generic(msgspec.Struct, typing.Generic[T], omit_defaults=True):
    """A class whose type has an alias."""

    inside: T
    count: int = 0


def cached() -> Cached:
    """Return an instance with a cached value."""
    found = Cached()
    assert found.twice == 2
    return found


class Wrapped(msgspec.Struct, array_like=True):
    """One that is written as a list."""

    note: int


class WrappedMore(Wrapped):
    """A subclass."""

    more: int = 2


def signature(hint: Any) -> Signature:
    """Return the signature of a function with one parameter, and with the same result."""

    def f(a: object) -> object:
        """Return the argument."""

    f.__annotations__ = {"a": hint, "return": hint}
    return Signature(f, "f")


LOST = [
    (Line | None, {"item": 1, "more": 2}, "{'item': 1, 'more': 2} becomes {'item': 1}; 'more' is lost: annotate it"),
    (Typed, {"note": 1, "count": 2, "x": 1, "y": 2}, "'x', 'y' are lost"),
    (
        list[Struct],
        [Struct(1), More(1, 2, 3)],
        "[1]: {'note': 1, 'count': 2, 'more': 3} becomes {'note': 1, 'count': 2}",
    ),
    (dict[int, Struct], {3: More(1)}, "['3']: {'note': 1, 'count': 1, 'more': 0} becomes"),
    (Model, MoreModel(note=1), "{'note': 1, 'more': 0} becomes {'note': 1}"),
    (Model, {"note": 1, "extra": 2}, "'extra' is lost"),
    (Lean, LeanMore("n", 1, 2), "'more' is lost"),
    (Cached, CachedMore(1), "'more' is lost"),
    (Generic[Line], {"inside": {"item": 1, "more": 2}, "count": 0}, "['inside']: {'item': 1, 'more': 2} becomes"),
    (Wrapped, WrappedMore(1), "[1, 2] becomes [1]; items are lost"),
    (Plain, {"next": {"next": None, "inside": [], "x": 1}}, "['next']: {'next': None"),
]


@pytest.mark.parametrize(("hint", "value", "why"), LOST, ids=lambda each: str(each)[:30])
def test_what_an_annotation_does_not_read_is_refused(caplog: pytest.LogCaptureFixture, hint: Any, value: Any, why: str):
    """An argument names the place, the value, what would arrive, and what is lost; of a result the log does, once."""
    with pytest.raises(PayloadError, match="argument 'a' would not arrive as it is") as refused:
        signature(hint).write((value,), {})
    assert why in str(refused.value)
    returns = Returns(signature(hint))
    with caplog.at_level("WARNING"):
        assert returns.check(value) == returns.check(value)
    (line,) = caplog.messages
    assert line.startswith("f: the result is stored as it is, and who reads it does not get all of it, as -> ")
    assert why in line


@pytest.mark.parametrize("place", [each for each in PLACES if each is not by_machine])
def test_a_subclass_of_the_annotation_is_refused(app: App, place):
    """Its own fields would be lost."""
    with pytest.raises(PayloadError, match="would not arrive as it is: .*'weight' is lost"):
        place(app, Bulky())


def test_a_subclass_of_the_data_of_a_machine_is_refused(app: App):
    """As for events."""
    machine = app.machine("orders", data=Order)

    @machine.start
    def placed(event: Line) -> None:
        """Do nothing."""

    with pytest.raises(PayloadError, match="would not arrive as they are: .*'weight' is lost"):
        machine.codec.write(Bulky())


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Line, {}),
        (dict[float, Item], {1: Item("a")}),
        (set[Item], {Item("x" * n) for n in range(20)}),
        (set[Item], [Item("a"), Item("a")]),
        (Lean, {"note": "", "count": 0}),
        (Lean, Lean()),
        (Alias, {"Note": 1}),
        (Outer, {"inside": [{"Note": 1}]}),
        (Hidden, {"note": 1, "secret": 2}),
        (Renamed, {"old": 1}),
        (Boxed, {"note": 1}),
        (Cached, cached()),
        (Generic[Line], {"inside": {}, "count": 0}),
        (Model, {"note": 1}),
        (Decimal | Item, {"name": "a"}),
        (list[Item], [{"name": "a"}, {"count": 2, "name": "b"}]),
    ],
)
def test_added_defaults_other_orders_and_other_spellings_are_no_loss(hint: Any, value: Any):
    """Nothing is missing at the other end."""
    taken = signature(hint)

    assert taken.read(taken.write((value,), {})).keys() == {"a"}
    assert taken.read(taken.write((), {"a": value}, order="deterministic")).keys() == {"a"}


@pytest.mark.parametrize(("hint", "value"), [(Alias, {"Note": 1}), (dict[UUID, int], {UUID(int=10**38).hex: 1})])
def test_only_arguments_with_classes_are_compared(hint: Any, value: Any):
    """An argument that has other names when it is read may stand beside one of a class."""

    def f(other: object, line: Line) -> None:
        """Do nothing."""

    f.__annotations__ = {"other": hint, "line": Line}
    taken = Signature(f, "f")

    assert taken.read(taken.write((value, Line()), {})).keys() == {"other", "line"}
    with pytest.raises(PayloadError, match="argument 'line' would not arrive as it is: .*'weight' is lost"):
        taken.write((value, {"item": 1, "weight": 2}), {})


def test_what_cannot_be_written_again_is_not_compared():
    """A value of the user's class that is read as one that cannot be written is taken, as before."""

    class Strange(pydantic.BaseModel):
        note: int

        @pydantic.field_serializer("note")
        def once(self, value: int) -> int:
            if value == 2:
                raise ValueError
            return 2

    taken = signature(Strange)

    assert b'{"a":{"note":2}}' == taken.write((Strange(note=1),), {})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(int, False), (list[str], False), (Any, False), (Odd, False), (Line, True), (list[Typed], True), (Pair, True),
     (Model | None, True), (Alias, False), (Outer, False), (Plain, True), (Hidden, False),
     (Renamed, False), (Boxed, False), (Checked, True), (Cached, True), ("Missing", False)],
)  # fmt: skip
def test_only_annotations_with_classes_are_compared(kind: Any, expected: bool):
    """Plain arguments cost nothing more."""
    assert expected is may_lose(kind)
