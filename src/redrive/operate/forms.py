"""Forms: the body of an action, and the fields for the arguments of a task, made from their JSON Schema. PURE."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from redrive.operate.exchange import Fault, Form, Refusal

#: What the names of the fields begin with, so that no argument is taken for another part of the form.
PREFIX: Final = "arg."

#: Levels of objects in the example of an argument.
_DEEPEST: Final = 4

_EXAMPLES: Final[Mapping[str, object]] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}


class Field(msgspec.Struct, frozen=True, gc=False):
    """A field of a form.

    Attributes:
        name: of the argument.
        kind: ``text`` is taken as it is; ``number``, ``choice`` and ``json`` are JSON.
        required: True if the argument has no default.
        value: what the field contains at first.
        choices: the values of a ``choice``, as JSON.
    """

    name: str
    kind: str
    required: bool
    value: str = ""
    choices: tuple[str, ...] = ()


def fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the fields for the members of an object."""
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    return tuple(
        _field(name, member, definitions, required=name in required)
        for name, member in schema.get("properties", {}).items()
    )


def _field(name: str, member: Mapping[str, Any], definitions: Mapping[str, Any], *, required: bool) -> Field:
    given = "default" in member
    found = _resolved(member, definitions)
    kind = found.get("type")
    if "enum" in found or kind == "boolean":
        choices = tuple(map(_json, found.get("enum", (False, True))))
        return Field(name, "choice", required, _json(member["default"]) if given else "", choices)
    default = member.get("default")
    if _may_be_null(found) and default is None and given:
        return Field(name, "text", required)
    if kind == "string" and (default is None or isinstance(default, str)):
        return Field(name, "text", required, default or "")
    if kind in {"integer", "number"}:
        return Field(name, "number", required, _json(default) if given else "")
    value = default if given else _example(member, definitions, _DEEPEST)
    return Field(name, "json", required, msgspec.json.format(_json(value)) if required or given else "")


def _may_be_null(member: Mapping[str, Any]) -> bool:
    """Return True for a text or null."""
    return [each.get("type") for each in member.get("anyOf", ())] == ["string", "null"]


def _resolved(member: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = definitions.get(str(member.get("$ref", "")).rpartition("/")[2], member)
    return found


def _example(member: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> object:
    """Return a value of the form of a schema, to be changed by the user."""
    found = _resolved(member, definitions)
    if "default" in found:
        return found["default"]
    if "enum" in found:
        return found["enum"][0]
    if "anyOf" in found:
        return _example(found["anyOf"][0], definitions, depth)
    if found.get("type") != "object":
        return _EXAMPLES.get(str(found.get("type")))
    members = found.get("properties", {}).items() if depth else ()
    return {name: _example(each, definitions, depth - 1) for name, each in members}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def arguments(wanted: tuple[Field, ...], form: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments by name; an empty field that is not required leaves its argument out.

    Raises:
        Refusal: a field is not JSON, or is required and empty.
    """
    return dict(_arguments(wanted, form))


def _arguments(wanted: tuple[Field, ...], form: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for each in wanted:
        text = form.get(PREFIX + each.name, "")
        if each.kind == "text" and (text or each.required):
            yield each.name, text
        elif text.strip():
            try:
                yield each.name, msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise Refusal(HTTPStatus.BAD_REQUEST, f"{each.name} is JSON, and cannot be read: {error}") from error
        elif each.required:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{each.name} is required")


# -------------------------------------------------------------------------------------------------- bodies of actions


def read_form(body: bytes, wanted: type[Form]) -> dict[str, str]:
    """Read the body of an action, and return the fields that it has, as a browser would send them.

    Raises:
        Refusal: 400, it is not JSON, or has a wrong or unknown member.
    """
    try:
        form = msgspec.json.decode(body or b"{}", type=wanted)
    except msgspec.DecodeError as error:
        text = re.sub(r"Expected `str` matching regex '[^']*'", "expected an id", str(error))
        what, _, path = text.partition(" - at ")
        fault = Fault(path.strip("`") or "$", what)
        detail = f"the body cannot be read: {text}; its members are {members(wanted)}"
        raise Refusal(HTTPStatus.BAD_REQUEST, detail, faults=[fault]) from error
    given = ((each, getattr(form, each.name)) for each in msgspec.structs.fields(wanted))
    return {each.encode_name: as_text(value) for each, value in given if each.required or value != each.default}


def read_texts(body: bytes) -> dict[str, str]:
    """Read the body of an action with fields that are not known in advance, such as the arguments of a task.

    Raises:
        Refusal: 400, it is no JSON object with texts.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, str])
    except msgspec.DecodeError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}") from error


def members(wanted: type[Form]) -> str:
    """Write the members of a body, with the words that each may have."""
    return ", ".join(f"{each.encode_name}{_words(each.type)}" for each in msgspec.structs.fields(wanted))


def _words(kind: object) -> str:
    choices = [choice for choice in typing.get_args(kind) if isinstance(choice, str)]
    return f" ({', '.join(choices)})" if choices else ""


def as_text(value: object) -> str:
    """Return a member of a body as a browser would send it."""
    if value is None:
        return ""
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return str(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
