"""Immutable values: frozen, hashable, comparable, picklable.

A record of the policy layer is an annotated class body, on one of two bases. `Value` is for settings: it checks what it
is given, has equality by class, and is made once. `NamedTuple` is for the results of one attempt, such as `Failure` and
`Retry`: in CPython a tuple of nine fields is made in an eighth of the time. That of `typing` compiles each annotation,
which takes a tenth of the time in which a program that only decorates a function starts.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar, dataclass_transform, overload

from redrive.errors import PolicyValueError

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - other modules import it from here
else:

    class _TupleType(type):
        """The class of `NamedTuple`: makes a tuple with names from the annotations and members of a class."""

        def __new__(cls, name: str, _: tuple[type, ...], namespace: dict[str, Any]) -> type:
            notes = namespace.get("__annotations__", {})
            given = [each for each in notes if each in namespace]
            # The last fields have the defaults.
            if given != [*notes][len(notes) - len(given) :]:
                raise TypeError(f"{name}: a field without a default follows {given[0]}, which has one")
            defaults = [namespace[each] for each in given]
            made = namedtuple(  # noqa: PYI024 - see the module
                name, notes, defaults=defaults, module=namespace["__module__"]
            )
            for each, member in namespace.items():
                if each not in notes:
                    setattr(made, each, member)
            return made

    NamedTuple = type.__new__(_TupleType, "NamedTuple", (), {})

# Set an attribute of a value while it is being built: ``freeze(self, "name", value)``.
freeze = object.__setattr__

_Kept = TypeVar("_Kept")
_Given = TypeVar("_Given")


class Converted(Generic[_Kept, _Given]):
    """The annotation of a field that keeps another type than its argument has: ``Converted[kept, given]``.

    Type checkers read the two types from the methods, as those of a descriptor. There is none at run time: the field is
    a slot.
    """

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type) -> _Kept: ...
        def __get__(self, instance: object, owner: type) -> Any: ...
        def __set__(self, instance: object, value: _Given) -> None: ...


class Field:
    """The declaration of a field with a check.

    Args:
        check: ``check(value, name)`` returns the value to keep.
        default: of the argument.
        stored: the form in `redrive.policy.codec`; None for a field that cannot be stored.
        directive: the value in every directive that does not set the field.
    """

    __slots__ = ("check", "default", "directive", "kept", "stored")

    def __init__(
        self, check: Callable[[Any, str], object], default: object, stored: str | None, directive: object
    ) -> None:
        self.check: Callable[[Any, str], object] = check
        self.default: object = default
        self.stored: str | None = stored
        self.directive: object = directive
        #: What is kept of the default.
        self.kept: object = check(default, "")


class _ValueType(type):
    """The class of value classes: makes slots, fields and, where none is written, a constructor from the annotations.

    `dataclasses` would do the same, and take longer to import than the rest of this package.
    """

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, kw_only: bool = False
    ) -> _ValueType:
        inherited = next((base for base in bases if isinstance(base, _ValueType)), None)
        notes = namespace.get("__annotations__", {})
        own = tuple(note for note, kind in notes.items() if "ClassVar" not in str(kind))
        defaults = {} if inherited is None else dict(inherited._defaults)  # of the same class
        # A class attribute cannot have the name of a slot.
        defaults |= {each: namespace.pop(each) for each in own if each in namespace}
        before = () if inherited is None else inherited._fields
        fields = namespace.get("_fields", before + tuple(each for each in own if not each.startswith("_")))
        namespace.setdefault("__slots__", own)
        namespace |= {"_fields": fields, "__match_args__": fields, "_defaults": defaults}
        if fields != before and "__init__" not in namespace:
            checked = any(isinstance(defaults.get(each), Field) for each in fields)
            made = _checking_constructor(namespace) if checked else _constructor(fields, defaults, kw_only=kw_only)
            namespace["__init__"] = made
        return super().__new__(cls, name, bases, namespace)

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]


def _constructor(fields: tuple[str, ...], defaults: dict[str, Any], *, kw_only: bool) -> Callable[..., None]:
    """Compile an ``__init__`` that sets the fields, as `dataclasses` does."""
    parameters = ", ".join(f"{name}=defaults[{name!r}]" if name in defaults else name for name in fields)
    lines = [
        f"def __init__(self, {'*, ' * kw_only}{parameters}):",
        *(f"    freeze(self, {name!r}, {name})" for name in fields),
    ]
    made: Callable[..., None] = _compiled("\n".join(lines), {"freeze": freeze, "defaults": defaults})
    return made


def _checking_constructor(namespace: dict[str, Any]) -> Any:  # noqa: ANN401 - attributes of a function are set
    """Compile an ``__init__`` that passes all arguments to ``_keep``, with the signature that the fields declare."""
    fields, declared, notes = (namespace[each] for each in ("_fields", "_defaults", "__annotations__"))
    parameters = "=None, ".join(fields)
    # The names of the module are for tools that evaluate the annotations.
    scope = dict(vars(sys.modules[namespace["__module__"]]))
    constructor: Any = _compiled(f"def __init__(self, *, {parameters}=None): self._keep(locals())", scope)
    constructor.__kwdefaults__ = {name: declared[name].default for name in fields}
    constructor.__annotations__ = {name: _given(notes[name]) for name in fields} | {"return": "None"}
    return constructor


def _compiled(code: str, scope: dict[str, Any]) -> Any:  # noqa: ANN401 - the same
    made: dict[str, Any] = {}
    exec(code, scope, made)  # noqa: S102 - the names are those of annotations
    return made["__init__"]


def _given(note: str) -> str:
    """Return the type of the argument for the annotation of a field."""
    if not note.startswith("Converted["):
        return note
    return note.removesuffix("]").rpartition(", ")[2]


class Frozen(metaclass=_ValueType):
    """An immutable value, defined by its public annotations.

    They are its fields: the keyword arguments of the constructor, so that `with_` and pickling can rebuild the value.
    A constructor is written where arguments are checked or converted; it sets each attribute by `freeze`. Annotations
    with an underscore, and those that an explicit ``_fields`` leaves out, are derived and do not take part in equality.
    """

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
        raise AttributeError(
            f"{type(self).__name__} is frozen: {name!r} cannot be set; make a changed copy with .with_()"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be deleted")


@dataclass_transform(frozen_default=True)
class Value(Frozen):
    """An immutable value that type checkers read as a frozen dataclass."""


_V = TypeVar("_V", bound=Frozen)


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
