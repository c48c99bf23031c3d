"""The base of immutable values of the pure layers: frozen, hashable, comparable, picklable."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, TypeVar

from redrive.errors import PolicyValueError

__all__ = ["Value", "check_attempts", "freeze", "number", "whole"]

# Set an attribute of a value while it is being built: ``freeze(self, "name", value)``.
freeze = object.__setattr__

_V = TypeVar("_V", bound="Value")


class Value:
    """An immutable value, defined by the attributes that ``_fields`` names.

    ``_fields`` are also the keyword arguments of the constructor, so that `with_` and pickling can rebuild the value.
    Slots that are not in ``_fields`` are derived and do not take part in equality.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that build an equal value."""
        return {name: getattr(self, name) for name in self._fields}

    def with_(self, **changes: object) -> Self:
        """Return a copy with some fields changed, validated again.

        Args:
            **changes: fields by name, in any form that the constructor accepts.

        Raises:
            TypeError: a field does not exist.
            redrive.errors.PolicyValueError: the changed value is not valid.
        """
        arguments: dict[str, Any] = {**self.arguments(), **changes}
        return type(self)(**arguments)

    def _key(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self._fields])

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.arguments())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        message = f"{type(self).__name__} is frozen: {name!r} cannot be set; make a changed copy with .with_()"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        message = f"{type(self).__name__} is frozen: {name!r} cannot be deleted"
        raise AttributeError(message)


def _rebuild(cls: type[_V], arguments: dict[str, Any]) -> _V:
    return cls(**arguments)


def number(name: str, value: Any, *, above: float | None = None) -> float:  # noqa: ANN401 - checked here
    """Return a finite number, zero or more, or above a bound."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    low = 0 if above is None else above
    if not is_number or not (value > low or (above is None and value == low)) or value == float("inf"):
        wanted = "zero or more" if above is None else f"above {above:g}"
        raise PolicyValueError(f"{name}={value!r}: it is a number, {wanted}")
    found: float = value
    return found


def whole(name: str, value: object) -> int:
    """Return a whole number, zero or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyValueError(f"{name}={value!r}: it is a whole number, zero or more")
    return value


def check_attempts(attempts: int | None, field: str) -> int | None:
    """Return a number of executions, the first included, or None for no limit."""
    if attempts is None:
        return None
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise PolicyValueError(
            f"{field}={attempts!r}: attempts counts executions, the first included: a whole number from 1 up"
        )
    return attempts
