"""Values of every kind that one meets in payloads."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, TypedDict

import msgspec
import pydantic

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Level(enum.IntEnum):
    """An enum of numbers."""

    HIGH = 3


@dataclass(frozen=True)
class Line:
    """A dataclass inside a dataclass."""

    item: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    """A dataclass with all that one meets."""

    number: int
    lines: tuple[Line, ...]
    at: datetime
    colour: Colour = Colour.RED
    notes: dict[str, str] = field(default_factory=dict)


class Payment(msgspec.Struct, frozen=True):
    """A struct."""

    cents: int
    currency: str = "EUR"


class Circle(msgspec.Struct, frozen=True, tag=True):
    """One of a union."""

    radius: float


class Square(msgspec.Struct, frozen=True, tag=True):
    """The other of a union."""

    side: float


class Address(TypedDict):
    """A typed dict."""

    street: str
    number: int


class Person(pydantic.BaseModel):
    """A pydantic model."""

    name: str
    born: date


class Fussy(pydantic.BaseModel):
    """A model that raises what no validator should."""

    number: int

    @pydantic.model_validator(mode="before")
    @classmethod
    def refuse(cls, value: Any) -> Any:
        """Raise an error that is no ValueError."""
        raise LookupError("no such thing")


@dataclass
class CheckedNumber:
    """A dataclass that raises in ``__post_init__``."""

    number: int

    def __post_init__(self) -> None:
        """Refuse negative numbers with an exception of its own."""
        if self.number < 0:
            raise ArithmeticError("negative")


class Opaque:
    """A value that cannot be written as JSON."""
