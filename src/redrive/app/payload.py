"""Arguments to JSON and back, checked against the annotations on both ways.

A job outlives the process and often the code that enqueued it, so its arguments are data: a JSON object with one
member for each argument. They are checked twice. At enqueue the JSON is read back under the present annotations: what
cannot arrive is refused where the mistake was made. At execution it is read under the annotations of the code that
runs *then*. An argument that this code does not know is refused like one that is missing or has another type; one that
was left out gets its default. Where they do not fit, the job waits for a while for a worker with other code, and is
then dead with the reason ``BAD_PAYLOAD``; it blocks no other.

Anything msgspec knows may be annotated: dataclasses, structs, TypedDicts, enums, dates, UUIDs, decimals, unions of
these; and pydantic models. Where the annotation does not say what arrives (none, ``Any``, ``list``, ``dict[str, Any]``,
``str``) the argument must survive JSON unchanged: a ``datetime`` that would arrive as a ``str`` is refused, with the
advice to annotate it.

Reading and writing run the user's code: validators, ``__post_init__``, serialisers. Whatever that raises is a
`PayloadError` of the one job, so that no exception of the user's can stop a worker between its handlers.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from redrive.app.context import Context, Pending
from redrive.errors import PayloadError, TaskDefinitionError

__all__ = ["Returns", "Signature", "dec_hook", "enc_hook", "type_name", "write_result"]

SHOWN = 60
"""Characters of a value in a message."""

_OPEN = (Any, object, str, dict, list, tuple, set, frozenset)
"""Annotations under which a value may arrive as another: they do not say what is inside, or JSON writes it as text."""

_NOTHING = (Pending, typing.NoReturn, typing.Never)
"""Return annotations that say nothing about a result."""

_AWAITABLE = (collections.abc.Awaitable, collections.abc.Coroutine)

_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def enc_hook(value: Any) -> Any:  # noqa: ANN401 - msgspec's protocol
    """Write what msgspec does not know: pydantic models.

    Args:
        value: the object.

    Returns:
        What to write instead.

    Raises:
        NotImplementedError: nobody knows how.
    """
    dump = getattr(value, "model_dump", None)
    if dump is None:
        message = f"{type_name(type(value))} cannot be written as JSON: use a dataclass, a struct, a TypedDict"
        raise NotImplementedError(message)
    return dump(mode="json")


def dec_hook(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's protocol
    """Read what msgspec does not know: pydantic models.

    Args:
        kind: the annotated type.
        value: what JSON had.

    Returns:
        An instance of ``kind``.

    Raises:
        NotImplementedError: nobody knows how.
    """
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        message = f"{type_name(kind)} cannot be read from JSON: use a dataclass, a struct, a TypedDict"
        raise NotImplementedError(message)
    return validate(value)


def type_name(hint: Any) -> str:  # noqa: ANN401 - a type form
    """Write a type as in source code.

    Args:
        hint: a type or type form.

    Returns:
        Its name without module for classes; else its form.
    """
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _is_open(hint: Any) -> bool:  # noqa: ANN401 - a type form
    """Does this annotation leave open what arrives, wholly or in a part?"""
    parts = typing.get_args(hint)
    return any(map(_is_open, parts)) if parts else (typing.get_origin(hint) or hint) in _OPEN


def _said(error: Exception) -> str:
    """The text of an error; with its class where it is not one of those that tell about data."""
    known = isinstance(error, (PayloadError, msgspec.MsgspecError, TypeError, ValueError, NotImplementedError))
    return str(error) if known else f"{type(error).__name__}: {error}"


def _short(value: object) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


class Signature:
    """The parameters of a task's function, and their JSON.

    Args:
        function: the task's function.
        name: of the task, for messages.

    Raises:
        TaskDefinitionError: it has parameters that no JSON object can carry.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name
        self.parameters = inspect.signature(function).parameters
        for parameter in self.parameters.values():
            if parameter.kind not in _KINDS:
                message = (
                    f"task {name!r}: parameter {str(parameter)!r} cannot be part of a job; "
                    "its arguments are stored by name, so give each one a name"
                )
                raise TaskDefinitionError(message)

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations, resolved; late, since they may name classes that are defined further down."""
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            message = f"task {self.name!r}: its annotations cannot be resolved: {error}"
            raise TaskDefinitionError(message) from error

    @cached_property
    def context(self) -> str | None:
        """The name of the parameter that wants the `Context`, if one does."""
        return next((name for name in self.parameters if self.hints.get(name) is Context), None)

    @cached_property
    def payload(self) -> tuple[str, ...]:
        """The names of the parameters that a job carries."""
        return tuple(name for name in self.parameters if name != self.context)

    @cached_property
    def request(self) -> Any:  # noqa: ANN401 - a type form
        """The type that a catch request of this task carries: the one parameter's, else a mapping of names."""
        if len(self.payload) == 1:
            return self.hints.get(self.payload[0], Any)
        return dict[str, Any]

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        # A struct, because only a struct refuses members that it does not know. Its fields have names of their own,
        # because a parameter may have one that no field can have, such as `__x`.
        fields: list[tuple[str, Any, Any]] = []
        for place, name in enumerate(self.payload):
            required = self.parameters[name].default is inspect.Parameter.empty
            fields.append((f"_{place}", self.hints.get(name, Any), msgspec.NODEFAULT if required else msgspec.UNSET))
        names = {f"_{place}": name for place, name in enumerate(self.payload)}
        arguments = msgspec.defstruct("arguments", fields, kw_only=True, rename=names, forbid_unknown_fields=True)
        return msgspec.json.Decoder(arguments, dec_hook=dec_hook)

    @cached_property
    def _free(self) -> tuple[str, ...]:
        return tuple(name for name in self.payload if _is_open(self.hints.get(name, Any)))

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Write the arguments of a call.

        Args:
            args: by position, without the context.
            kwargs: by name, without the context.

        Returns:
            A JSON object.

        Raises:
            PayloadError: they do not fit the parameters, cannot be written, or could not be read again.
        """
        bound = self._bind(args, kwargs)
        try:
            raw = msgspec.json.encode(bound, enc_hook=enc_hook)
            arrived = self.read(raw)
        except Exception as error:  # serialisers and validators are the user's
            message = f"{self.name}: {_said(error)}"
            raise PayloadError(message) from error
        for name in self._free:
            if name in bound and arrived[name] != bound[name]:
                message = (
                    f"{self.name}: argument {name!r} would not arrive as it is: {_short(bound[name])} becomes "
                    f"{_short(arrived[name])}; annotate the parameter with what it is"
                )
                raise PayloadError(message)
        return raw

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.payload):
            message = f"{self.name}: takes {len(self.payload)} arguments ({', '.join(self.payload)}), got {len(args)}"
            raise PayloadError(message)
        bound = dict(zip(self.payload, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.payload or name in bound:
                what = "given twice" if name in bound else f"unknown; parameters: {', '.join(self.payload) or 'none'}"
                message = f"{self.name}: argument {name!r} is {what}"
                raise PayloadError(message)
            bound[name] = value
        return bound

    def read(self, raw: bytes) -> dict[str, Any]:
        """Read the arguments of a job under the present annotations.

        Args:
            raw: a JSON object.

        Returns:
            The arguments by name.

        Raises:
            PayloadError: they do not fit.
        """
        try:
            arguments = msgspec.structs.astuple(self._decoder.decode(raw))
        except TaskDefinitionError:
            raise
        except Exception as error:  # validators are the user's
            message = f"the arguments do not match the annotations: {_said(error)}"
            raise PayloadError(message) from error
        # What is unset was left out: the function's own default applies.
        return {name: value for name, value in zip(self.payload, arguments, strict=True) if value is not msgspec.UNSET}

    def read_request(self, raw: bytes, hint: Any) -> tuple[Any, Any]:  # noqa: ANN401 - what the catch task asked for
        """Read the arguments of a failed job as the one value that its catch task gets.

        They are those that were stored, also where the parameters of the task have been changed since. A catch task
        that takes any request then gets the mapping of names that was stored.

        Args:
            raw: the failed job's JSON object.
            hint: the ``T`` of the catch task's ``CatchRequest[T]``.

        Returns:
            The one argument, or a mapping where the task has several, or had other parameters when it was enqueued;
            and the annotation of that value.

        Raises:
            PayloadError: it does not fit.
        """
        open_hint = hint in (Any, object)
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
                    message = f"task {self.name!r} takes {name!r} now, and the job was stored with {names}"
                    raise PayloadError(message)  # noqa: TRY301 - the text below belongs to it too
            return stored if open_hint else self._converted(stored, hint), dict[str, Any]
        except Exception as error:  # validators are the user's
            message = f"the request does not match CatchRequest[{type_name(hint)}]: {_said(error)}"
            raise PayloadError(message) from error

    def _converted(self, value: object, hint: Any) -> Any:  # noqa: ANN401 - what the catch task asked for
        return msgspec.convert(value, hint, str_keys=True, dec_hook=dec_hook)


def write_result(value: Any) -> bytes | None:  # noqa: ANN401 - the user's
    """Write a result.

    Args:
        value: what a handler returned.

    Returns:
        JSON; None for None.

    Raises:
        PayloadError: it cannot be written.
    """
    if value is None:
        return None
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except Exception as error:  # serialisers are the user's
        message = f"the result cannot be stored: {_said(error)}"
        raise PayloadError(message) from error


class Returns:
    """The result of a task's function, and its JSON.

    Args:
        signature: of the function.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    @cached_property
    def hint(self) -> Any:  # noqa: ANN401 - a type form
        """The return annotation, without `Pending`, which is no result; Any without one, and where that was all."""
        hint = self._signature.hints.get("return", Any)
        parts = typing.get_args(hint)
        if typing.get_origin(hint) in _AWAITABLE and parts:
            hint = parts[-1]  # of a plain function that returns a coroutine, which the worker awaits
            parts = typing.get_args(hint)
        if hint in _NOTHING:
            return Any
        if Pending not in parts:
            return hint
        return typing.Union[tuple(part for part in parts if part is not Pending)]  # noqa: UP007 - made at run time

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """What reads a result.

        Raises:
            TaskDefinitionError: the annotation cannot be resolved, or JSON cannot be read as such a type.
        """
        hint = self.hint
        try:
            return msgspec.json.Decoder(hint, dec_hook=dec_hook)
        except TypeError as error:
            name = self._signature.name
            message = f"task {name!r}: its return annotation -> {type_name(hint)} cannot be read from JSON: {error}"
            raise TaskDefinitionError(message) from error

    @cached_property
    def _takes_none(self) -> bool:
        return self.hint in (Any, object, type(None))

    def check(self, value: Any) -> bytes | None:  # noqa: ANN401 - the user's
        """Write a result, after a check that it can be read again by the return annotation.

        Args:
            value: what the handler returned, or what an answer from outside says.

        Returns:
            JSON; None for None.

        Raises:
            PayloadError: it cannot be written, or does not match the annotation.
            TaskDefinitionError: the annotation cannot be resolved, or JSON cannot be read as such a type.
        """
        if value is None and self._takes_none:
            return None
        raw = write_result(value)
        shown = b"null" if raw is None else raw
        self._read(shown, f"the result {_cut(shown.decode())}")
        return raw

    def read(self, raw: bytes | None) -> Any:  # noqa: ANN401 - the user's
        """Read a result.

        Args:
            raw: JSON, or None.

        Returns:
            The value, by the return annotation.

        Raises:
            PayloadError: it does not fit the present annotation.
        """
        return None if raw is None else self._read(raw, "the stored result")

    def _read(self, raw: bytes, what: str) -> Any:  # noqa: ANN401 - the user's
        decoder = self.decoder
        try:
            return decoder.decode(raw)
        except Exception as error:  # validators are the user's
            message = f"{what} does not match -> {type_name(self.hint)}: {_said(error)}"
            raise PayloadError(message) from error
