"""The OpenAPI 3.1 document of the JSON API, made from the table of routes and the structs of pages and forms. PURE.

Descriptions are those of the docstrings: the first line of a handler, and the ``Attributes`` of a struct.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from redrive.operate.exchange import Id, Note
from redrive.operate.table import ROWS, Row
from redrive.runtime.health import Verdict
from redrive.web.api import API, DRY_RUN, LONGEST_KEY, Problem, parts_of

#: The path of the document, below the place of the API.
DOCUMENT: Final = "/openapi.json"

#: Responses to requests that are not served, by their status.
PROBLEMS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.BAD_REQUEST: "A parameter or the body is wrong; the answer names the part, and what would be right.",
    HTTPStatus.UNAUTHORIZED: "The request has no valid credentials.",
    HTTPStatus.FORBIDDEN: "The sender may not do this.",
    HTTPStatus.NOT_FOUND: "It does not exist.",
    HTTPStatus.CONFLICT: "The present state does not allow the action, or has changed since it was read.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body has more than 64 KiB.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not JSON.",
    HTTPStatus.MISDIRECTED_REQUEST: "The dashboard does not serve this host.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The Idempotency-Key belongs to another request.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many actions; the header Retry-After says when the next one is possible.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database does not answer; the header Retry-After says when to try again.",
}

_OF_ACTIONS: Final = frozenset(
    {
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)

_SCHEMAS: Final = "#/components/schemas/"

_PROBES: Final = {
    "/livez": "Return 200 as long as the server handles requests.",
    "/readyz": "Return 200 if the server can serve requests: its database answers, with the present schema.",
    "/startupz": "Return 200 as soon as the database has answered once.",
}

_WORDS: Final = {"True": "true", "False": "false", "None": "null"}

Json = dict[str, Any]


def document(prefix: str = "") -> Json:
    """Return the document.

    Args:
        prefix: the place where the dashboard is mounted.
    """
    schemas = _schemas()
    queries = {route.query.__name__ for route in ROWS if route.query is not None}
    paths: Json = {}
    for route in ROWS:
        paths.setdefault(path_of(route), {})[route.method.lower()] = _operation(route, schemas)
    for path, summary in _PROBES.items():
        paths[path] = {"get": _probe(path, summary)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "redrive",
            "version": "1",
            "description": "Jobs, queues, runs, machines, topics and schedules: read them, and act on them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Not the place of the API: probes are outside of it, and few readers follow the servers of a single path.
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}, {"password": []}],
        "tags": [{"name": name} for name in dict.fromkeys(map(_tag, ROWS))] + [{"name": "Health"}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
            "responses": {_name(status): _refused(text) for status, text in PROBLEMS.items()},
            "schemas": {name: each for name, each in schemas.items() if name not in queries},
        },
    }


def path_of(route: Row) -> str:
    """Return the path of a route below the place of the dashboard."""
    return API + ("/overview" if route.path == "/" else re.sub(r":\w+}", "}", route.path))


def _operation(route: Row, schemas: Json) -> Json:
    found: Json = {
        "operationId": f"{route.procedure.__module__.rpartition('.')[2]}_{route.procedure.__name__}",
        "summary": inspect.getdoc(route.procedure),
        "tags": [_tag(route)],
        "parameters": [*_places(route), *_parameters(route, schemas)],
    }
    if route.form is not None:
        body = {"schema": {"$ref": f"{_SCHEMAS}{route.form.__name__}"}}
        found["requestBody"] = {"required": True, "content": {"application/json": body}}
    answers = [{"$ref": f"{_SCHEMAS}{each.__name__}"} for each in parts_of(route.data)]
    refused = [each for each in PROBLEMS if route.form is not None or each not in _OF_ACTIONS]
    found["responses"] = {
        **_answered(route, answers[0] if len(answers) == 1 else {"anyOf": answers}),
        **{str(each.value): {"$ref": f"#/components/responses/{_name(each)}"} for each in refused},
    }
    return found


def _answered(route: Row, schema: Json) -> Json:
    answer: Json = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    if "limit" in _fields(route):
        link = {"description": "The next page (rel=next); missing on the last one.", "schema": {"type": "string"}}
        answer["headers"] = {"Link": link}
    done = {"200": answer}
    if route.status is not HTTPStatus.OK:
        place = {"description": "The path of what was made.", "schema": {"type": "string"}}
        done[str(route.status.value)] = {**answer, "description": route.status.phrase, "headers": {"Location": place}}
        note = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{Note.__name__}"}}}
        done["200"] = {"description": "Checked only, because of dry_run.", "content": note}
    return done


def _places(route: Row) -> Iterator[Json]:
    for name in re.findall(r"{(\w+)", route.path):
        schema = msgspec.json.schema(Id) if name == "id" else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _parameters(route: Row, schemas: Json) -> Iterator[Json]:
    known = schemas[route.query.__name__] if route.query is not None else {"properties": {}}
    for name, member in known["properties"].items():
        schema = {key: value for key, value in member.items() if key not in {"description", "default"}}
        if "anyOf" in schema:
            (schema,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
        yield {
            "name": name,
            "in": "query",
            "required": name in known.get("required", ()),
            "description": member.get("description", ""),
            "schema": schema,
        }
    if route.form is not None:
        yield {
            "name": DRY_RUN,
            "in": "query",
            "description": "1: check the action, and change nothing.",
            "schema": {"enum": ["0", "1"]},
        }
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "A text of your own. For 24 hours, a request with the same key has the answer of the first "
            "one, and is not carried out again.",
            "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
        }


def _probe(path: str, summary: str) -> Json:
    content = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{Verdict.__name__}"}}}
    return {
        "operationId": path.strip("/"),
        "summary": summary,
        "tags": ["Health"],
        "security": [],
        "responses": {
            "200": {"description": "OK", "content": content},
            "503": {"description": "A check fails; the answer names it.", "content": content},
        },
    }


def _refused(text: str) -> Json:
    schema = {"$ref": f"{_SCHEMAS}{Problem.__name__}"}
    return {"description": text, "content": {"application/problem+json": {"schema": schema}}}


def _name(status: HTTPStatus) -> str:
    # The phrases differ between versions of Python.
    return f"Problem{status.value}"


def _tag(route: Row) -> str:
    return route.section or next(
        (each.section for each in ROWS if each.path == route.path and each.section), "Problems"
    )


def _fields(route: Row) -> Sequence[str]:
    return () if route.query is None else route.query.__struct_fields__


# ----------------------------------------------------------------------------------------------------------- schemas


def _schemas() -> Json:
    kinds: list[Any] = [Problem, Note, Verdict]
    for route in ROWS:
        kinds += [*parts_of(route.data), *filter(None, (route.query, route.form))]
    _, schemas = msgspec.json.schema_components(dict.fromkeys(kinds), ref_template=_SCHEMAS + "{name}")
    # Defaults are values of Python there, such as tuples.
    found: Json = msgspec.json.decode(msgspec.json.encode(schemas))
    for each in _structs(msgspec.inspect.multi_type_info(kinds)):
        schema = found[each.cls.__name__]
        for field in each.fields:
            if _has_instants(field.type):
                _mark_instants(schema["properties"][field.encode_name])
        _describe(schema, [base.__doc__ or "" for base in each.cls.__mro__ if issubclass(base, msgspec.Struct)])
    return dict(sorted(found.items()))


def _structs(kinds: Iterable[msgspec.inspect.Type]) -> Iterator[msgspec.inspect.StructType]:
    """Return structs, and those that their fields have."""
    waiting, seen = list(kinds), set[type]()
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType) and kind.cls not in seen:
            seen.add(kind.cls)
            yield kind
            waiting += [field.type for field in kind.fields]
        waiting += _inside(kind)


def _inside(kind: msgspec.inspect.Type) -> Sequence[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.UnionType):
        return kind.types
    if isinstance(kind, msgspec.inspect.TupleType):
        return kind.item_types
    return (kind.item_type,) if isinstance(kind, msgspec.inspect.VarTupleType) else ()


def _has_instants(kind: msgspec.inspect.Type) -> bool:
    return isinstance(kind, msgspec.inspect.DateTimeType) or any(map(_has_instants, _inside(kind)))


# The schemas of msgspec name the format only of instants that are required to have an offset, which all have here.
def _mark_instants(schema: Json) -> None:
    if schema.get("type") == "string":
        schema["format"] = "date-time"
    for each in [*schema.get("anyOf", ()), *filter(None, [schema.get("items")])]:
        _mark_instants(each)


def _describe(schema: Json, docstrings: Iterable[str]) -> None:
    """Give a struct the text of its docstring, and each attribute its own, also those of the classes above it."""
    first, *_ = found = list(map(described, docstrings))
    schema["description"] = first[0]
    for name, line in (pair for _, lines in reversed(found) for pair in lines.items()):
        if name in schema["properties"]:
            schema["properties"][name]["description"] = line


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring, and the descriptions of its attributes by name."""
    text, _, attributes = docstring.partition("Attributes:\n")
    lines = re.split(r"\n {4}(?=\w+: )", "\n" + inspect.cleandoc(attributes).replace("\n", "\n    "))
    return _plain(text), dict(_attributes(lines))


def _attributes(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, text = line.strip().partition(": ")
        if colon:
            yield name, _plain(text)


def _plain(text: str) -> str:
    words = " ".join(text.replace("``", "`").split())
    return re.sub(r"\b(True|False|None)\b", lambda found: _WORDS[found[0]], words)
