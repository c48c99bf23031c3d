"""``redrive --url``: commands that act through the JSON API of a dashboard, without a database and without the App.

The names, options and checks of a command are those of the command itself; only its work is done by a request. `CALLS`
lists the commands that have one. The answers are printed as they come: tables of the members of lists, and documents.
"""

from __future__ import annotations

import copy
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import typer

from redrive import errors
from redrive.cli.screen import Grid, print_document, say, say_unread
from redrive.engine.records import CONDITIONS
from redrive.errors import ConfigurationError, RedriveError, StoreUnreachable

# Seconds that the server may take for an answer.
PATIENCE: Final = 30

API: Final = "/api/v1"

# Parameters that are no part of a request.
_LOCAL: Final = frozenset({"app", "json"})


class Call(msgspec.Struct, frozen=True):
    """The request of a command.

    Attributes:
        path: below the place of the API, with parameters of the command in braces.
        action: of a POST; None for a GET.
        columns: the members that a table shows of each item; empty for a document.
        given: the parameters of the command that become parameters of the URL, or members of the body, each with its
            name there.
        where: the parameters that are conditions of a filter, the member or the parameter ``q``.
        part: the member of the answer that is shown; empty for all of it.
        one: the path if a single id is the only condition.
    """

    path: str
    action: str | None = None
    columns: tuple[str, ...] = ()
    given: Mapping[str, str] = {}
    where: tuple[str, ...] = ()
    part: str = ""
    one: str = ""


# The parameters that are conditions of a filter of jobs.
_SELECTING: Final = tuple("numbers" if each == "ids" else each for each in CONDITIONS)

_LIMIT: Final = {"limit": "limit"}
_PAGED: Final = _LIMIT | {"before": "before"}
_WHY: Final = {"why": "why"}
_KEY: Final = {"key": "key"}

CALLS: Final[Mapping[str, Call]] = {
    "jobs list": Call(
        "/jobs",
        columns=("id", "task", "queue", "standing", "attempts", "why"),
        given=_PAGED,
        where=_SELECTING,
    ),
    "jobs show": Call("/jobs/{number}"),
    "jobs retry": Call("/jobs/{number}", "retry"),
    "jobs skip": Call("/jobs/{number}", "skip"),
    "jobs cancel": Call(
        "/operations",
        "cancel",
        given=_WHY | {"dry_run": "dry_run"},
        where=_SELECTING,
        one="/jobs/{}",
    ),
    "jobs redrive": Call(
        "/operations",
        "redrive",
        given={"rate": "rate", "to": "queue", "dry_run": "dry_run"},
        where=_SELECTING,
    ),
    "jobs repolicy": Call("/operations", "repolicy", given={"dry_run": "dry_run"}, where=_SELECTING),
    "jobs audit": Call("/audit", columns=("at", "actor", "action", "details"), given=_PAGED),
    "operations list": Call(
        "/operations", columns=("id", "state", "action", "done", "kept", "matched", "rate", "actor", "q"), given=_PAGED
    ),
    "operations show": Call("/operations/{number}"),
    "operations stop": Call("/operations/{number}", "stop"),
    "operations undo": Call("/operations/{number}", "undo"),
    "enqueue": Call(
        "/tasks/{task}",
        "",
        given={
            name: {"tag": "tags"}.get(name, name)
            for name in ("args", "kwargs", "delay", "at", "queue", "priority", "expires", "tag", "key")
        },
    ),
    "doctor": Call("/health", columns=("check", "severity", "text", "advice"), part="findings"),
    "errors list": Call(
        "/errors",
        columns=("id", "task", "dead", "failures", "last_at", "name"),
        given={**_PAGED, "task": "task", "dead": "dead"},
    ),
    "errors show": Call("/errors/{group}"),
    "errors mute": Call("/errors/{group}", "mute", given={"span": "span"}),
    "errors unmute": Call("/errors/{group}", "unmute"),
    "queues list": Call("/queues", columns=("name", "due", "oldest_seconds", "later", "running", "dead", "workers")),
    "queues show": Call("/queues/{queue}"),
    "queues pause": Call("/queues/{queue}", "pause"),
    "queues resume": Call("/queues/{queue}", "resume"),
    "queues limit": Call(
        "/queues/{queue}", "limit", given={name: name for name in ("concurrency", "per_partition", "rate")}
    ),
    "workers list": Call("/workers", columns=("id", "name", "alive", "busy", "slots", "queues", "heard_at", "version")),
    "schedules list": Call("/schedules", columns=("name", "kind", "when", "due_at", "paused_at")),
    "schedules show": Call("/schedules/{name}"),
    "schedules trigger": Call("/schedules/{name}", "trigger"),
    "schedules pause": Call("/schedules/{name}", "pause"),
    "schedules resume": Call("/schedules/{name}", "resume"),
    "schedules update": Call("/schedules/{name}/item", "update", given=_KEY),
    "machines list": Call(
        "/machines/{machine}",
        columns=("key", "state", "status", "entered_at", "error"),
        given={**_LIMIT, "state": "state", "status": "status", "after": "after"},
        part="instances",
    ),
    "machines show": Call("/machines/{machine}/{key}"),
    "machines retry": Call("/machines/{machine}/{key}", "retry"),
    "machines skip": Call("/machines/{machine}/{key}", "skip"),
    "machines reset": Call("/machines/{machine}/{key}", "reset", given={"state": "to"}),
    "topics list": Call(
        "/topics", columns=("topic", "name", "lag", "failed", "dead", "standing"), part="subscriptions"
    ),
    "topics show": Call("/topics/{topic}/{subscription}"),
    "topics pause": Call("/topics/{topic}/{subscription}", "pause"),
    "topics resume": Call("/topics/{topic}/{subscription}", "resume"),
    "topics move": Call("/topics/{topic}/{subscription}", "move", given={"to": "to", "dry_run": "dry_run"}),
    "topics skip": Call("/topics/{topic}/{subscription}", "skip", given={"event": "event"}),
    "topics redrive": Call("/topics/{topic}/{subscription}", "redrive", given={"rate": "rate"}),
    "runs list": Call(
        "/runs",
        columns=("id", "workflow", "version", "standing", "job_id", "why"),
        given={**_PAGED, "workflow": "workflow", "state": "state", "hold": "hold"},
    ),
    "runs show": Call("/runs/{run}"),
    "runs signal": Call("/runs/{run}", "signal", given={"name": "name", "value": "value", "key": "key"}),
    "runs cancel": Call("/runs/{run}", "cancel", given=_WHY),
    "runs pause": Call("/runs/{run}", "pause", given=_WHY),
    "runs resume": Call("/runs/{run}", "resume"),
}
"""The commands that work through a URL, and what they send."""


class Server(msgspec.Struct, frozen=True):
    """A dashboard.

    Attributes:
        url: the place where it is mounted, without a slash at the end.
        token: the bearer token; None without authentication.
    """

    url: str
    token: str | None

    @classmethod
    def of(cls, url: str, token_file: str | None) -> Server:
        """Return the dashboard of the options; raise `ConfigurationError` if they are wrong."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise ConfigurationError(
                f"--url {url!r} is not the address of a dashboard, such as https://ops.example.com"
            )
        if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
            raise ConfigurationError(f"--url {url}: the token would be sent in plain text; use https://")
        return cls(url.rstrip("/"), None if token_file is None else _token(Path(token_file)))

    def send(self, path: str, *, query: Mapping[str, str], body: object) -> Any:  # noqa: ANN401 - JSON
        """Send a request, and return the answer; raise `RedriveError` with the sentence of the server."""
        address = f"{self.url}{API}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(address, data, headers)  # noqa: S310 - `of` has checked the scheme
        try:
            with _OPENER.open(request, timeout=PATIENCE) as response:
                return msgspec.json.decode(response.read())
        except urllib.error.HTTPError as error:
            raise _refused(error.code, error.read(), self.url) from None
        except (OSError, msgspec.DecodeError) as error:
            reason = getattr(error, "reason", error)
            raise StoreUnreachable(f"{self.url} does not answer as a dashboard: {reason}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect, which would take the token elsewhere."""


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def _token(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--token-file {path} cannot be read: {error}") from error
    if not text or not text.isprintable() or " " in text:
        raise ConfigurationError(f"--token-file {path} has no token: one line with visible characters")
    return text


def _refused(status: int, raw: bytes, url: str) -> RedriveError:
    """Return the error of a problem document, of the class that its type names."""
    try:
        problem = msgspec.json.decode(raw, type=dict[str, Any])
        detail, kind = str(problem["detail"]), str(problem["type"]).rpartition("/")[2]
    except (msgspec.DecodeError, KeyError):
        return StoreUnreachable(f"{url} does not answer as a dashboard: status {status}")
    if status == HTTPStatus.UNAUTHORIZED:
        return ConfigurationError(f"{url} refuses the token: {detail}")
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, RedriveError):
        return found(detail)
    return (ConfigurationError if status == HTTPStatus.BAD_REQUEST else RedriveError)(detail)


# ---------------------------------------------------------------------------------------------------------- commands


def through(command: Any, words: Sequence[str], url: str, token_file: str | None) -> Any:  # noqa: ANN401 - typer's
    """Return a command, or a group of commands, that acts through a URL, and has no App."""
    found = copy.copy(command)
    children = getattr(command, "commands", None)
    if children is not None:
        found.commands = {name: through(child, (*words, name), url, token_file) for name, child in children.items()}
        return found
    found.params = [each for each in command.params if each.name != "app"]
    defaults = {each.name: each.default for each in command.params}

    def act(**params: object) -> None:
        """Send the request of the command."""
        _act(" ".join(words), params, defaults, lambda: Server.of(url, token_file))

    found.callback = act
    return found


def _act(words: str, params: Mapping[str, Any], defaults: Mapping[str, Any], server: Callable[[], Server]) -> None:
    call = CALLS.get(words)
    if call is None:
        raise ConfigurationError(
            f"redrive {words} does not work through --url: it needs the App and its database; these commands do: "
            f"{', '.join(CALLS)}"
        )
    given = {name: value for name, value in params.items() if value not in (None, (), defaults[name])}
    path, names = _place(call, params), {**call.given, **({"key": "key"} if _is_item(call, params) else {})}
    placed = {each for each in given if f"{{{each}}}" in call.path}
    left = [name for name in given if name not in {*placed, *names, *call.where, *_LOCAL}]
    if left:
        raise ConfigurationError(f"--{left[0].replace('_', '-')} of redrive {words} does not work through --url")
    members = {names[name]: _value(names[name], value) for name, value in given.items() if name in names}
    dry_run = {"dry_run": "1"} if members.pop("dry_run", False) else {}
    conditions = {name: given[name] for name in call.where if name in given}
    if call.one and conditions.keys() == {"numbers"} and len(given["numbers"]) == 1:
        path = call.one.format(*given["numbers"])
    elif conditions or (call.where and call.action):
        members["q"] = " ".join(_condition(name, value) for name, value in conditions.items())
    if call.action is not None:
        body = members | ({"action": call.action} if call.action else {})
        found = server().send(path, query=dry_run, body=body)
    else:
        query = {name: "1" if value is True else str(value) for name, value in members.items()}
        found = server().send(path, query=query, body=None)
    _show(call, found, as_json=bool(params.get("json")))


def _is_item(call: Call, params: Mapping[str, Any]) -> bool:
    return call.path == "/schedules/{name}" and params.get("key") is not None


def _place(call: Call, params: Mapping[str, Any]) -> str:
    """Return the path of a request."""
    # A run is named WORKFLOW/ID, and the path has both.
    run = {"run": "/".join(quote(part, safe="") for part in str(params.get("run")).split("/", 1))}
    places = {name: quote(str(value), safe="") for name, value in params.items()} | run
    if "{run}" in call.path and "/" not in run["run"]:
        raise ConfigurationError(f"through --url a run is named WORKFLOW/ID, not {params['run']!r}")
    if "{machine}" in call.path and params.get("machine") is None:
        raise ConfigurationError("through --url the instances of one machine are listed: give --machine")
    return call.path.format_map(places) + ("/item" if _is_item(call, params) else "")


def _value(member: str, value: Any) -> Any:  # noqa: ANN401 - the value of an option
    """Return the value of an option as the API takes it."""
    if member in {"args", "kwargs", "value"}:
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{value!r} is no JSON: {error}; a text needs quotes, as in '\"text\"'") from error
    if member in {"concurrency", "per_partition", "rate"} and value == "none":
        return None
    if member in {"concurrency", "per_partition"} and str(value).isdigit():
        return int(value)
    return str(value) if member == "event" else value


def _condition(name: str, value: Any) -> str:  # noqa: ANN401 - the value of an option
    """Return a condition of a filter."""
    if name == "numbers":
        return f"id:{','.join(map(str, value))}"
    if name == "caught":
        return f"caught:{'yes' if value else 'no'}"
    if '"' in str(value):
        raise ConfigurationError(f"--{name} {value!r}: a filter of the API has no quotes in its values")
    return f'{name}:"{value}"'


# ----------------------------------------------------------------------------------------------------------- answers


def _show(call: Call, found: Any, *, as_json: bool) -> None:  # noqa: ANN401 - JSON
    """Print an answer: the sentence of an action, a table of a list, or the members of a document."""
    if call.columns:
        _list(found[call.part or "items"], call.columns, as_json=as_json)
        if found.get("searched_to"):
            say_unread(found["searched_to"])
        elif found.get("before") and "before" in call.given:
            what = "jobs" if call.path == "/jobs" else "ones"
            say(f"... --before {found['before']} shows older {what}, --limit up to 200 at once", err=True)
        elif not as_json and (found.get("before") or found.get("after")):
            say("... more follow; --limit shows up to 200", err=True)
        if call.path == "/health" and not found["ok"]:
            # As `redrive doctor` does.
            raise typer.Exit(1)
    elif as_json:
        print_document(found)
    elif call.action is not None:
        say(found["note"])
    else:
        for line in _lines(found, ""):
            say(line)


def _list(items: Sequence[Any], columns: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        for each in items:
            print_document(each)
        return
    table = Grid(*columns, wide=columns[-1:])
    for each in items:
        table.add(*(_cell(each[name]) for name in columns))
    table.show()


def _cell(value: Any) -> str:  # noqa: ANN401 - JSON
    """Write a value of a table."""
    if isinstance(value, dict) and value.keys() == {"value", "capped"}:
        return f"{value['value']:,}{'+' if value['capped'] else ''}"
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Write a document in lines, without members that are empty, and without pictures."""
    for name, each in value.items():
        if each in (None, [], {}, "") or (isinstance(each, str) and each.startswith("<svg")):
            continue
        if isinstance(each, dict) and each.keys() != {"value", "capped"}:
            yield f"{indent}{name}:"
            yield from _lines(each, f"{indent}  ")
        elif isinstance(each, list) and isinstance(each[0], dict):
            yield f"{indent}{name}:"
            for number, item in enumerate(each, 1):
                yield f"{indent}  {number}."
                yield from _lines(item, f"{indent}    ")
        else:
            yield f"{indent}{name}: {_cell(each)}"
