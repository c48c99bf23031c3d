"""The fields of arguments by which the jobs of a task are found, as its definition names them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from redrive.app.arguments import checked_texts
from redrive.engine.search import secret_part
from redrive.errors import TaskDefinitionError


def checked_search(given: object, where: str) -> tuple[str, ...]:
    """Return the fields of a definition; raise `TaskDefinitionError` for one that dashboards do not show."""
    fields = checked_texts(given, f"{where}: search")
    for field in fields:
        secret = secret_part(field)
        if secret is not None:
            raise TaskDefinitionError(
                f"{where}: search={list(fields)!r}: dashboards redact {secret!r}, and a tag would show its value"
            )
    return fields


def check_fields(fields: Sequence[str], schema: Mapping[str, Any], where: str) -> None:
    """Raise `TaskDefinitionError` for a field that arguments of this JSON Schema cannot have."""
    for field in fields:
        found: list[Mapping[str, Any]] = [schema]
        for part in field.split("."):
            objects = [each for one in found for each in _objects(one, schema.get("$defs", {}))]
            names = {name for each in objects for name in each.get("properties", {})}
            if part not in names and not any(_is_open(each) for each in objects):
                raise _unknown(field, part, names, where)
            found = [each["properties"].get(part, {}) if "properties" in each else {} for each in objects]


def _objects(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the schemas of the objects that a value may be, or contain as a list."""
    if "$ref" in schema:
        yield from _objects(definitions.get(str(schema["$ref"]).rpartition("/")[2], {}), definitions)
    elif "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from _objects(each, definitions)
    elif schema.get("type") == "array":
        for each in (schema.get("items") or {}, *schema.get("prefixItems", ())):
            yield from _objects(each, definitions)
    elif schema.get("type", "object") == "object":
        yield schema


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Return True if an object may have members that its schema does not name."""
    return "properties" not in schema or bool(schema.get("additionalProperties"))


def _unknown(field: str, part: str, names: Collection[str], where: str) -> TaskDefinitionError:
    near = difflib.get_close_matches(part, names, n=1)
    known = ", ".join(sorted(names)) or "none"
    hint = f"is {near[0]!r} meant?" if near else f"there are: {known}"
    return TaskDefinitionError(f"{where}: search={field!r}: its arguments have no {part!r}; {hint}")
