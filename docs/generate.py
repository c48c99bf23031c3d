"""The parts of the reference that are generated from the code, so that they describe its present behaviour.

conf.py makes them MyST substitutions: ``{{ lifecycle }}`` is the table of states, ``{{ timeline }}`` the attempts of
the program on the first page, and ``{{ redrive_jobs_list }}`` the usage of the command ``redrive jobs list``.
``make openapi`` runs this module: it writes the description of the JSON API, from which conf.py renders the reference.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument
from typer.main import get_command

from redrive.cli import cli
from redrive.engine.lifecycle import TABLE, LifecycleEvent
from redrive.operate.charts.waterfall import Row, draw
from redrive.operate.exchange import Payloads
from redrive.operate.job import attempt_bars, attempt_line
from redrive.operate.shown import Shown
from redrive.operate.table import ROWS
from redrive.web.openapi import document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typer.core import TyperCommand, TyperOption


OPENAPI = Path(__file__).with_name("reference") / "openapi.json"


def lifecycle() -> str:
    """Write the table of states and events in Markdown."""
    head = ["event", *(f"`{state}`" for state in TABLE)]
    cells = {
        event: [f"`{moves[event]}`" if event in moves else "" for moves in TABLE.values()] for event in LifecycleEvent
    }
    return _table([head, *([f"`{event}`", *row] for event, row in cells.items())])


def timeline() -> str:
    """Run the program of the first page, and draw the attempts of its job."""
    page = (Path(__file__).parent / "index.md").read_text()
    names: dict[str, Any] = {}
    logging.getLogger("redrive").setLevel(logging.ERROR)  # the failures of the program are wanted
    for program in re.findall(
        r"^(?:```python|<!-- invisible-code-block: python)\n(.*?)^(?:```|-->)$", page, re.MULTILINE | re.DOTALL
    ):
        exec(program, names)  # noqa: S102 - the page is part of this repository
    job = names["job"].refresh()
    lines = [attempt_line(each, Shown.of(Payloads.SHOW)) for each in job.attempts]
    bars = attempt_bars(lines)
    row = Row(tuple(bars), "; ".join(each.tip for each in bars))
    picture = draw([row], lines[-1].finished_at, UTC, folded=False)
    return f'<figure class="timeline">{picture.axis}{picture.rows[0]}</figure>'


def pictures() -> dict[str, str]:
    """Return the two pictures of each page of the dashboard, of which the theme of the reader shows one."""
    folder = Path(__file__).parent / "screenshots"
    names = sorted(path.stem.removesuffix("-light") for path in folder.glob("*-light.webp"))
    return {f"picture_{name}": "\n\n".join(_image(name, scheme) for scheme in ("light", "dark")) for name in names}


def _image(name: str, scheme: str) -> str:
    path, text = f"/screenshots/{name}-{scheme}.webp", name.replace("_", " ")
    return f"```{{image}} {path}\n:alt: {text}\n:class: only-{scheme}\n```"


def commands() -> dict[str, str]:
    """Return the usage of each command in Markdown, by the words of the command joined with ``_``."""
    return {"_".join(words): _usage(words, command) for words, command in leaves(get_command(cli), ("redrive",))}


def remote_commands() -> str:
    """Write the commands that work through a URL as a list in Markdown."""
    groups: dict[str, list[str]] = {}
    for words in sorted({each for row in ROWS for each in row.words if "--" not in each}):
        group, _, name = words.partition(" ")
        groups.setdefault(group, []).append(name)
    lines = (f"* `{group}`" + (f": {', '.join(names)}" if any(names) else "") for group, names in groups.items())
    return "\n".join(lines)


def leaves(command: TyperCommand, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Yield the commands without subcommands, each with the words that call it."""
    children = getattr(command, "commands", {})
    if not children:
        yield words, command
    for name, child in children.items():
        yield from leaves(child, (*words, name))


def _usage(words: tuple[str, ...], command: TyperCommand) -> str:
    context = typer.Context(command, info_name=words[-1])
    line = " ".join([*words, *command.collect_usage_pieces(context)])
    parameters = [_parameter(parameter) for parameter in command.params]
    rows = _table([["parameter", "meaning", "default"], *parameters])
    return "\n\n".join([f"```text\n{line}\n```", command.help or "", rows])


def _parameter(parameter: TyperArgument | TyperOption) -> list[str]:
    names = parameter.metavar if isinstance(parameter, TyperArgument) else ", ".join(parameter.opts)
    default = parameter.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    return [f"`{names or parameter.name}`", parameter.help or "", "required" if parameter.required else shown]


def _table(rows: Iterable[list[str]]) -> str:
    head, *body = [" | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    rule = " | ".join("---" for _ in head.split(" | "))
    return "\n".join(f"| {line} |" for line in (head, rule, *body))


def openapi() -> str:
    """Write the OpenAPI document of this version."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def http_api() -> str:
    """Write the reference of the JSON API in Markdown, from the stored OpenAPI document."""
    found: dict[str, Any] = json.loads(OPENAPI.read_text(encoding="utf-8"))
    schemas = found["components"]["schemas"]
    parts = []
    for tag in found["tags"]:
        parts.append(f"## {tag['name']}")
        for path, methods in found["paths"].items():
            for method, each in methods.items():
                if each["tags"] == [tag["name"]]:
                    parts.append(_call(method, path, each, schemas))
    parts.append("## Problems by status")
    refused = {
        int(status): answer
        for call in _calls(found)
        for status, answer in call["responses"].items()
        if "$ref" in answer
    }
    texts = found["components"]["responses"]
    rows = [[str(status), texts[_name(refused[status])]["description"]] for status in sorted(refused)]
    parts += [_table([["status", "meaning"], *rows]), "## Objects"]
    parts += [_object(name, each) for name, each in schemas.items()]
    return "\n\n".join(parts)


def _calls(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in found["paths"].values():
        yield from methods.values()


def _call(method: str, path: str, call: dict[str, Any], schemas: dict[str, Any]) -> str:
    parts = [f"### {method.upper()} {path}", call["summary"]]
    given = [
        [f"`{each['name']}`", _type(each["schema"]), each.get("description", "")]
        for each in call.get("parameters", ())
        if each["in"] == "query" and each["name"] != "dry_run"
    ]
    if given:
        parts.append(_table([["parameter", "type", "meaning"], *given]))
    if "requestBody" in call:
        body = schemas[_name(call["requestBody"]["content"]["application/json"]["schema"])]
        parts += ["The body is an object:", _members(body)]
    status = max(each for each in call["responses"] if each.startswith("2"))
    answer = _type(call["responses"][status]["content"]["application/json"]["schema"])
    return "\n\n".join([*parts, f"It answers {answer}." if status == "200" else f"It answers {status} and {answer}."])


def _object(name: str, schema: dict[str, Any]) -> str:
    body = _members(schema) if "properties" in schema else f"One of {_type(schema)}."
    return "\n\n".join(filter(None, [f"### {name}", schema.get("description", ""), body]))


def _members(schema: dict[str, Any]) -> str:
    rows = [
        [f"`{name}`", _type(each), each.get("description", "")] for name, each in schema.get("properties", {}).items()
    ]
    return _table([["member", "type", "meaning"], *rows])


def _type(schema: dict[str, Any]) -> str:
    """Write a type in words."""
    if "$ref" in schema:
        name = _name(schema)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        parts = schema.get("prefixItems") or [schema.get("items", {})]
        return f"list of {', '.join(map(_type, parts))}"
    return {"date-time": "instant"}.get(schema.get("format", ""), schema.get("type", "any JSON"))


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


if __name__ == "__main__":
    OPENAPI.write_text(openapi(), encoding="utf-8")
