"""Adapters for the state machines of ``ftl.json``: terminal states, precedence of policies, and origins."""

from __future__ import annotations

from dataclasses import make_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redrive.app.app import App
from redrive.engine.origin import Kind, of_cron, of_machine, of_topic, read_origin
from tests.conformance.adapters.vocabulary import UnknownWord, read, word
from tests.conformance.deviations import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.app.machine import Machine
    from tests.conformance.loading import Case


def terminal_states(case: Case) -> None:
    """Check which states of a machine are final; each state has an event of its own."""
    data = read(case.data, "start", "transitions", "terminal", required=("start", "transitions", "terminal"))
    machine = App("memory://").machine("fsm")
    names = dict.fromkeys([*data["start"], *(name for pair in data["transitions"] for name in pair)])
    for name in names:
        after = [source for source, target in data["transitions"] if target == name]
        _add(machine, name, after=after, start=name in data["start"])
    found = sorted(machine.definition.final)
    if found != sorted(data["terminal"]):
        raise Mismatch(data["terminal"], found)


def retry_precedence(case: Case) -> None:
    """Check the policy of a transition whose state and whose machine have directives, or not."""
    data = read(case.data, "fsm", "verb", "effective", required=("fsm", "verb", "effective"))
    effective = read(data["effective"], "count", "min", "max", "catch", required=("count",))
    machine = App("memory://").machine("fsm", retry=data["fsm"])
    policy = _add(machine, "state", start=True, retry=data["verb"]).policy
    found: dict[str, object] = {"count": (policy.attempts or 0) - 1, "catch": policy.catch}
    if effective["count"]:
        found |= {"min": policy.backoff.delay(1), "max": policy.backoff.delay(100)}
    else:
        found |= {"min": 0, "max": 0}
    for name, value in effective.items():
        if found[name] != value:
            raise Mismatch(value, found[name])


def origin(case: Case) -> None:
    """Check that an origin is read back with its kind and names, or refused.

    FTL's text separates its parts by colons, and redrive's by a colon and a slash; an input is written in redrive's
    form by its kind.
    """
    data = read(
        case.data, "input", "kind", "module", "verb", "fsm", "key", "subscription", "error", required=("input",)
    )
    prefix, _, rest = data["input"].partition(":")
    if data.get("error"):
        found = read_origin(_REFUSED.get(prefix, prefix) + ":" + rest.replace(":", "/", 1))
        if found is not None:
            raise Mismatch("a refusal", str(found))
        return
    kind, write, expected = word(data["kind"], _ORIGINS)
    found = read_origin(write(data))
    answer = None if found is None else (found.kind, found.name, found.part)
    if answer != (kind, *expected(data)):
        raise Mismatch(str((kind, *expected(data))), str(answer))


AT = datetime(2026, 1, 1, tzinfo=UTC)

_REFUSED = {"fsm": "machine", "sub": "topic"}

_ORIGINS: dict[str, tuple[Kind, Callable[[Any], str], Callable[[Any], tuple[str, str]]]] = {
    "cron": (
        Kind.CRON,
        lambda data: of_cron(f"{data['module']}.{data['verb']}", AT),
        lambda data: (f"{data['module']}.{data['verb']}", "2026-01-01T00:00:00Z"),
    ),
    "fsm": (
        Kind.MACHINE,
        lambda data: of_machine(data["fsm"], data["key"]),
        lambda data: (data["fsm"], data["key"]),
    ),
    "pubsub": (
        Kind.TOPIC,
        lambda data: of_topic("topic", data["subscription"], 7),
        lambda data: ("topic", f"{data['subscription']}#7"),
    ),
}


def _add(machine: Machine, name: str, **options: Any) -> Any:
    """Register a state with an event class of its own."""
    if not isinstance(name, str):
        raise UnknownWord(f"{name!r} (known: the name of a state)")

    def handler(event: Any) -> None: ...

    handler.__annotations__["event"] = make_dataclass(f"Event{name}", [])
    return machine.state(name=name, **options)(handler)
