"""Arguments and results as JSON, checked against the annotations of the function.

A job stores its arguments as a JSON object with one member for each argument. They are checked twice: at enqueue under
the present annotations, and at execution under the annotations of the code that runs then. If they do not match at
execution, the job waits for a worker with other code, and is dead with the reason ``BAD_PAYLOAD`` after a while.

Annotations may be anything that msgspec supports (dataclasses, structs, TypedDicts, enums, dates, UUIDs, decimals,
unions of these), pydantic models, and `zoneinfo.ZoneInfo`. A function with another annotation is refused at import.
A ``datetime`` has its offset in JSON, but not its time zone; one in a zone with changing offsets is refused at enqueue.
An argument without a precise annotation (none, ``Any``, ``list``,
``dict[str, Any]``, ``str``), or a field of this kind in an argument, must not be changed by JSON: a ``datetime`` that
would become a ``str`` is refused. A value of a class must arrive with all that it has: the fields of a subclass of the
annotation, or further keys of a TypedDict, are refused. The same holds for events and for the data of machines.
"""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from redrive.app.arguments import SHOWN, shown
from redrive.app.attempts.context import Context, Pending
from redrive.app.types import (
    Loss,
    change,
    covers,
    holds_time,
    left_out,
    loss,
    lost_zone,
    may_change,
    may_lose,
    no_number,
    type_name,
    unsupported,
    unwritable,
)
from redrive.engine.records import ENCODED
from redrive.errors import PayloadEncoded, PayloadError, TaskDefinitionError
from redrive.observe.logs import logger

_log = logger("redrive.jobs")

_NOTHING = (Pending, typing.NoReturn, typing.Never)
"""Return annotations without a type of the result."""

_AWAITABLE = (collections.abc.Awaitable, collections.abc.Coroutine)

_ARGUMENTS = "the document of its arguments"

#: Why a stored document is still encoded.
NOT_DECODED = "App(codec=...) is missing, or has not its key, or its decode() fails, as the log says"

KeyOrder: TypeAlias = Literal["deterministic"] | None

_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def enc_hook(value: object) -> Any:
    """Convert pydantic models and time zones for msgspec to write."""
    if isinstance(value, ZoneInfo) and value.key:
        return value.key
    if inspect.iscoroutine(value):
        raise NotImplementedError(f"the coroutine {value.__qualname__}() was not awaited: await is missing")
    if isinstance(value, type):
        name = value.__qualname__
        raise NotImplementedError(f"{name} is a class, and cannot be written as JSON: make an instance, {name}(...)")
    dump = getattr(value, "model_dump", None)
    if dump is None and callable(value):
        label = getattr(value, "__qualname__", type_name(type(value)))
        raise NotImplementedError(
            f"{label} can be called, and cannot be written as JSON: pass its name, or make it a task of its own"
        )
    if dump is None:
        raise NotImplementedError(
            f"{type_name(type(value))} cannot be written as JSON: use a dataclass, a struct, a TypedDict"
        )
    return dump(mode="json")


def dec_hook(kind: type, value: Any) -> Any:
    """Convert JSON to pydantic models and time zones for msgspec."""
    if kind is object:
        return value
    if kind is ZoneInfo:
        return ZoneInfo(value)
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{type_name(kind)} cannot be read from JSON: use a dataclass, a struct, a TypedDict")
    return validate(value)


def _schema(kind: type) -> dict[str, Any]:
    """Return the JSON Schema of a type that msgspec does not have."""
    describe = getattr(kind, "model_json_schema", None)
    if describe is not None:
        schema: dict[str, Any] = describe()
        return schema
    return {"type": "string"} if kind is ZoneInfo else {}


def _encoded(arguments: object, order: KeyOrder) -> bytes:
    try:
        return msgspec.json.encode(arguments, enc_hook=enc_hook, order=order)
    except TypeError:
        if order is None:
            raise
    # msgspec sorts members only if the keys are texts, which those of a mapping of numbers are in JSON.
    return msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(arguments, enc_hook=enc_hook)), order=order)


def _place(arguments: Mapping[str, Any]) -> str:
    """Return which argument cannot be written, as the beginning of a sentence."""
    for name, value in arguments.items():
        try:
            _encoded({name: value}, None)
        except Exception:  # noqa: BLE001 - serialisers are the user's
            return f"argument {name!r}: "
    return ""


def refuse_encoded(raw: bytes, what: str) -> None:
    """Raise `PayloadEncoded` if a stored document is encoded: the store has decoded those that it can decode."""
    if raw.startswith(ENCODED):
        raise PayloadEncoded(f"{what} is encoded, and this process cannot decode it: {NOT_DECODED}")


def _text(error: Exception) -> str:
    """Return the text of an error, with its class unless it is an error about data."""
    known = isinstance(error, (PayloadError, msgspec.MsgspecError, TypeError, ValueError, NotImplementedError))
    return str(error) if known else f"{type(error).__name__}: {error}"


def _lost(value: object) -> str:
    """Return why a value has null in JSON that was none; empty if that is not so."""
    number = no_number(value)
    return "" if number is None else f" (JSON has no {number}: null stands in its place)"


def find_loss(
    hint: object, raw: bytes, arrived: object, *, order: KeyOrder = None, members: Collection[str] | None = None
) -> Loss | None:
    """Return what a value loses when it is read, such as the fields of a subclass of its annotation; None if nothing.

    The documents of the value and of what was read are compared, but only if they are not equal.

    Args:
        hint: the annotation under which it was read.
        raw: its JSON.
        arrived: what was read from that.
        order: of the members in `raw`.
        members: the names of those that are compared; by default, the whole documents are.
    """
    try:
        again = _encoded(arrived, order)
    except Exception:  # noqa: BLE001 - serialisers are the user's; what they refuse cannot be compared
        return None
    if again == raw:
        return None
    before, after = msgspec.json.decode(raw), msgspec.json.decode(again)
    if members is not None:
        before, after = ({name: each[name] for name in members if name in each} for each in (before, after))
    return loss(before, after, left_out(hint))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def check_document(raw: bytes, what: str, limit: int | None) -> None:
    """Raise `PayloadError` if JSON is larger than a limit in bytes, or would be read as an encoded document.

    ``what`` begins the error.
    """
    if raw.startswith(ENCODED):
        raise PayloadError(f"{what} cannot begin with {ENCODED[1:-1].decode()}: redrive knows encoded documents by it")
    if limit is not None and len(raw) > limit:
        raise PayloadError(
            f"{what} would be {len(raw):,} bytes of JSON, and the limit is {limit:,} (App(max_payload=...)): store the "
            "content elsewhere, and pass a reference to it"
        )


def _without_names(name: str) -> TaskDefinitionError:
    return TaskDefinitionError(
        f"task {name!r} is a function in C, and its arguments have no names by which a job could store them: write a "
        "def that calls it"
    )


# Of msgspec, about the arguments themselves and not a value in one of them.
_MISSING = re.compile(r"Object missing required field `([^`]+)`")


class Signature:
    """The parameters of a task's function, and their JSON."""

    known = True
    """False if this process does not have the function."""

    limit: int | None = None
    """The most bytes of the arguments; None for a function whose arguments are not stored."""

    def __init__(self, function: Callable[..., Any], name: str, *, injected: tuple[type, ...] = (Context,)) -> None:
        self.function = function
        self.name = name
        self._injected = injected
        try:
            self.parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
        except ValueError as error:
            raise _without_names(name) from error
        for parameter in self.parameters.values():
            if parameter.kind not in _KINDS:
                if inspect.isbuiltin(function):
                    raise _without_names(name)
                raise TaskDefinitionError(
                    f"task {name!r}: parameter {str(parameter)!r} cannot be part of a job; "
                    "its arguments are stored by name, so give each one a name"
                )

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The resolved annotations."""
        # Resolved at the first use, because they may name classes that are defined further down in the module.
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise TaskDefinitionError(f"task {self.name!r}: its annotations cannot be resolved: {error}") from error

    @property
    def resolved(self) -> bool:
        """True if the annotations can be resolved now."""
        try:
            return self.hints is not None
        except TaskDefinitionError:
            return False

    def check_types(self) -> None:
        """Raise `TaskDefinitionError` unless every parameter of a job has a type that JSON can be read as."""
        for name in self.payload:
            hint = self.hints.get(name, Any)
            problem = unsupported(hint)
            if problem:
                raise TaskDefinitionError(
                    f"task {self.name!r}: its parameter {name!r} cannot be stored in a job: {problem}"
                )

    @cached_property
    def context(self) -> str | None:
        """The name of the parameter for what the worker passes, such as the `Context`, if there is one."""
        return next((name for name in self.parameters if self.hints.get(name) in self._injected), None)

    @cached_property
    def payload(self) -> tuple[str, ...]:
        """The names of the parameters that a job stores."""
        return tuple(name for name in self.parameters if name != self.context)

    @cached_property
    def request(self) -> Any:
        """The type of the request in a `CatchRequest`: that of the only parameter, or a mapping of names."""
        if len(self.payload) == 1:
            return self.hints.get(self.payload[0], Any)
        return dict[str, Any]

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        # A struct, because msgspec refuses unknown members only for structs. Its fields have names of their own,
        # because the name of a parameter may be illegal for a field, such as `__x`.
        fields: list[tuple[str, Any, Any]] = []
        for place, name in enumerate(self.payload):
            required = self.parameters[name].default is inspect.Parameter.empty
            fields.append((f"_{place}", self.hints.get(name, Any), msgspec.NODEFAULT if required else msgspec.UNSET))
        names = {f"_{place}": name for place, name in enumerate(self.payload)}
        arguments = msgspec.defstruct("arguments", fields, kw_only=True, rename=names, forbid_unknown_fields=True)
        return msgspec.json.Decoder(arguments, dec_hook=dec_hook)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of stored arguments: an object with a member for each parameter."""
        try:
            found = msgspec.json.schema(self._decoder.type, schema_hook=_schema)
        except TypeError:
            # The request of a catch task may be a union of classes that JSON does not tell apart.
            return {"type": "object", "properties": {}, "title": self.name}
        definitions = found["$defs"]
        top = definitions.pop(found["$ref"].rpartition("/")[2])
        for name, member in top["properties"].items():
            default = self.parameters[name].default
            # A default that cannot be written as JSON is left out: the schema describes, and does not check.
            with contextlib.suppress(TypeError, NotImplementedError, ValueError):
                if default is not inspect.Parameter.empty:
                    member["default"] = msgspec.json.decode(msgspec.json.encode(default, enc_hook=enc_hook))
        return {**top, "title": self.name, **({"$defs": definitions} if definitions else {})}

    @cached_property
    def _free(self) -> tuple[str, ...]:
        return tuple(name for name in self.payload if may_change(self.hints.get(name, Any)))

    @cached_property
    def _losing(self) -> tuple[str, ...]:
        return tuple(name for name in self.payload if may_lose(self.hints.get(name, Any)))

    @cached_property
    def _timed(self) -> tuple[str, ...]:
        return tuple(name for name in self.payload if holds_time(self.hints.get(name, Any)))

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, order: KeyOrder = None) -> bytes:
        """Return the arguments of a call, without the context, as JSON that was read again as a check.

        With ``order="deterministic"`` equal arguments have equal JSON: the members of objects and sets are sorted.
        """
        bound = self._bind(args, kwargs)
        try:
            raw = _encoded(bound, order)
        except Exception as error:
            # Serialisers and validators are the user's and may raise anything, which must not stop a worker.
            raise PayloadError(f"{self.name}: {_place(bound)}{_text(error)}") from error
        check_document(raw, f"{self.name}: the arguments", self.limit)
        try:
            decoded = self._decode(raw)
        except Exception as error:
            raise PayloadError(f"{self.name}: {_text(error)}{_lost(bound)}") from error
        arrived = self._by_name(decoded) if self._free else {}
        for name in self._free:
            found = change(self.hints.get(name, Any), bound[name], arrived[name]) if name in bound else None
            if found is not None:
                raise PayloadError(f"{self.name}: argument {name!r} would not arrive as it is: {found}")
        if self._losing:
            self._check_loss(raw, decoded, order)
        for name in self._timed:
            zone = lost_zone(bound.get(name))
            if zone is not None:
                raise PayloadError(
                    f"{self.name}: argument {name!r} has a time in the zone {zone}, and JSON keeps only its offset: "
                    "give value.astimezone(datetime.UTC), and the zone as an argument of its own (zoneinfo.ZoneInfo)"
                )
        return raw

    def _check_loss(self, raw: bytes, decoded: msgspec.Struct, order: KeyOrder) -> None:
        """Raise `PayloadError` if an argument of a class has more members than its annotation."""
        found = find_loss(self._decoder.type, raw, decoded, order=order, members=self._losing)
        if found is not None:
            name = next(each for each in self._losing if found.place.startswith(f"[{each!r}]"))
            inside = found._replace(place=found.place.removeprefix(f"[{name!r}]"))
            raise PayloadError(f"{self.name}: argument {name!r} would not arrive as it is: {inside}")

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.payload):
            raise PayloadError(
                f"{self.name}: takes {len(self.payload)} arguments ({', '.join(self.payload)}), got {len(args)}"
            )
        bound = dict(zip(self.payload, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.payload or name in bound:
                what = "given twice" if name in bound else f"unknown; parameters: {', '.join(self.payload) or 'none'}"
                raise PayloadError(f"{self.name}: argument {name!r} is {what}")
            bound[name] = value
        return bound

    def read(self, raw: bytes) -> dict[str, Any]:
        """Return the arguments of a job by name; raise `PayloadError` if they do not match the present annotations."""
        return self._by_name(self._decode(raw))

    def _decode(self, raw: bytes) -> msgspec.Struct:
        try:
            arguments: msgspec.Struct = self._decoder.decode(raw)
        except TaskDefinitionError:
            raise
        except Exception as error:
            refuse_encoded(raw, _ARGUMENTS)
            missing = _MISSING.fullmatch(str(error))
            if missing is not None:
                raise PayloadError(f"argument {missing[1]!r} is missing{self._hint(missing[1])}") from error
            # As in `write`.
            raise PayloadError(f"the arguments do not match the annotations: {_text(error)}") from error
        return arguments

    def _hint(self, name: str) -> str:
        if name in self.hints or name not in ("ctx", "context", "flow"):
            return ""
        kind = "Flow" if name == "flow" else "Context"
        return f"; annotate the parameter, {name}: redrive.{kind}, and the worker gives it"

    def _by_name(self, arguments: msgspec.Struct) -> dict[str, Any]:
        values = zip(self.payload, msgspec.structs.astuple(arguments), strict=True)
        # Unset arguments were left out: the default of the function applies.
        return {name: value for name, value in values if value is not msgspec.UNSET}

    def read_request(self, raw: bytes, hint: object) -> tuple[Any, Any]:
        """Return the request of a failed job for its catch task, and the annotation of the request.

        The request is the only argument, or a mapping of names if the task has several, or had other parameters when
        the job was enqueued. The hint is the ``T`` of the catch task's ``CatchRequest[T]``; of a union,
        which may have classes that JSON does not tell apart, the type of this task is read.
        """
        refuse_encoded(raw, _ARGUMENTS)
        open_hint = hint in (Any, object)
        hint = self.request if covers(hint, self.request) else hint
        try:
            stored: dict[str, Any] = msgspec.json.decode(raw)
            if len(self.payload) == 1:
                (name,) = self.payload
                default = self.parameters[name].default
                if not stored and default is not inspect.Parameter.empty:
                    return default, self.request
                if stored.keys() == {name}:
                    value = stored[name]
                    return value if open_hint else self._converted(value, hint), self.request
                if not open_hint:
                    names = ", ".join(map(repr, stored)) or "no arguments"
                    raise PayloadError(f"task {self.name!r} takes {name!r} now, and the job was stored with {names}")  # noqa: TRY301 - the text below belongs to it too
            return stored if open_hint else self._converted(stored, hint), dict[str, Any]
        except Exception as error:
            # As in `write`.
            raise PayloadError(f"the request does not match CatchRequest[{type_name(hint)}]: {_text(error)}") from error

    def _converted(self, value: object, hint: object) -> Any:
        return msgspec.convert(value, hint, str_keys=True, dec_hook=dec_hook)


class UnknownSignature(Signature):
    """The signature of a task without code in this process: any arguments by name, as plain JSON."""

    known = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: Mapping[str, inspect.Parameter] = MappingProxyType({})

    @cached_property
    def hints(self) -> dict[str, Any]:
        """No annotations."""
        return {}

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, order: KeyOrder = None) -> bytes:
        """Return the arguments as JSON, after a check that JSON does not change them."""
        if args:
            raise PayloadError(
                f"{self.name}: this process does not have the task, so its arguments are given by name, got "
                f"{shown(args)}"
            )
        try:
            raw = _encoded(kwargs, order)
            arrived = msgspec.json.decode(raw)
        except Exception as error:
            # As in `Signature.write`.
            raise PayloadError(f"{self.name}: {_place(kwargs)}{_text(error)}") from error
        check_document(raw, f"{self.name}: the arguments", self.limit)
        for name, value in kwargs.items():
            if arrived[name] != value:
                raise PayloadError(
                    f"{self.name}: argument {name!r} would not arrive as it is: {shown(value)} becomes "
                    f"{shown(arrived[name])}; give it as JSON has it"
                )
        return raw


def write_result(value: object, what: str = "the result", limit: int | None = None) -> bytes | None:
    """Return a result as JSON; None for None.

    Raise `PayloadError`, which names ``what``, if it cannot be written, or by `check_document`.
    """
    if value is None:
        return None
    try:
        raw = msgspec.json.encode(value, enc_hook=enc_hook)
    except Exception as error:
        # As in `Signature.write`.
        raise PayloadError(f"{what} cannot be stored: {_text(error)}") from error
    check_document(raw, what, limit)
    return raw


def write_value(value: object, what: str, limit: int | None = None) -> bytes | None:
    """Return a value with a class that only its reader names as JSON; None for None.

    Raise `PayloadError`, which names ``what``, if it cannot be written, or by `check_document`, or if a reader of any
    class would get another value, as of a number that JSON does not have.
    """
    raw = write_result(value, what, limit)
    found = unwritable(value)
    if found is not None:
        how = found.with_advice(
            "give it as JSON has it, or as the field of a dataclass that is annotated with what it is"
        )
        raise PayloadError(f"{what} would not arrive as it is: {how}")
    return raw


class Returns:
    """The return annotation of a task's function, and the JSON of results."""

    limit: int | None = None
    """The most bytes of a result; None if another place checks it."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._warned = False

    @cached_property
    def hint(self) -> Any:
        """The return annotation without `Pending`; Any if none is left."""
        hint = self._signature.hints.get("return", Any)
        parts = typing.get_args(hint)
        if typing.get_origin(hint) in _AWAITABLE and parts:
            # A plain function that returns a coroutine, which the worker awaits.
            hint = parts[-1]
            parts = typing.get_args(hint)
        if hint in _NOTHING:
            return Any
        if Pending not in parts:
            return hint
        return typing.Union[tuple(part for part in parts if part is not Pending)]  # noqa: UP007 - made at run time

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """The decoder of results. A `TaskDefinitionError` is raised for annotations that JSON cannot be read as."""
        hint = self.hint
        try:
            return msgspec.json.Decoder(hint, dec_hook=dec_hook)
        except TypeError as error:
            raise self._refused(str(error)) from error

    def check_type(self) -> None:
        """Raise `TaskDefinitionError` unless the result has a type that JSON can be read as."""
        problem = unsupported(self.hint)
        if problem:
            raise self._refused(problem)

    def _refused(self, problem: str) -> TaskDefinitionError:
        return TaskDefinitionError(
            f"task {self._signature.name!r}: its return annotation -> {type_name(self.hint)} cannot be read from JSON: "
            f"{problem}"
        )

    @cached_property
    def _takes_none(self) -> bool:
        return self.hint in (Any, object, type(None))

    @cached_property
    def _loses(self) -> bool:
        return may_lose(self.hint)

    def check(self, value: object) -> bytes | None:
        """Return a result as JSON, None for None, after a check that it can be read again by the annotation."""
        if value is None and self._takes_none:
            return None
        raw = write_result(value, limit=self.limit)
        text, decoder = b"null" if raw is None else raw, self.decoder
        try:
            arrived = decoder.decode(text)
        except Exception as error:
            raise self._unlike(f"the result {_cut(text.decode())}", error, value) from error
        if self._loses and not self._warned:
            self._warn(find_loss(self.hint, text, arrived))
        return raw

    # The function has done its work, which an error would not undo; and what is stored has all of it.
    def _warn(self, found: Loss | None) -> None:
        if found is not None:
            self._warned = True
            where = f"{self._signature.name}: the result is stored as it is, and who reads it does not get all of it"
            _log.warning("%s, as -> %s: %s. This is logged once", where, type_name(self.hint), found)

    def read(self, raw: bytes | None) -> Any:
        """Read a stored result; raise `PayloadError` if it does not match the present annotation."""
        if raw is None:
            return None
        refuse_encoded(raw, "the stored result")
        decoder = self.decoder
        try:
            return decoder.decode(raw)
        except Exception as error:
            raise self._unlike("the stored result", error) from error

    # The errors are of any class, as in `Signature.write`.
    def _unlike(self, what: str, error: Exception, value: object = None) -> PayloadError:
        return PayloadError(f"{what} does not match -> {type_name(self.hint)}: {_text(error)}{_lost(value)}")
