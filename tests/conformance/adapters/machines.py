"""Adapters for the state machines of ``ftl.json``: terminal states, precedence of policies, and origins."""

from __future__ import annotations

import re
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Any

from redrive.app.app import App
from redrive.engine.origin import Kind, read_origin
from tests.conformance.adapters.vocabulary import UnknownWord, read, word
from tests.conformance.deviations import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.app.machines.machine import Machine
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
    """Check the policy of a transition with and without directives of its state and of its machine."""
    data = read(case.data, "fsm", "verb", "effective", required=("fsm", "verb", "effective"))
    effective = read(data["effective"], "count", "min", "max", "catch", required=("count",))
    machine = App("memory://").machine("fsm", retry=data["fsm"])
    policy = _add(machine, "state", start=True, retry=data["verb"]).policy
    found: dict[str, object] = {"count": (policy.attempts or 0) - 1, "catch": policy.catch}
    if effective["count"]:
        found |= {"min": policy.backoff.delay(1), "max": policy.backoff.delay(100)}
    else:
        # Without retries a policy has no delays, and FTL writes zeros.
        found |= {"min": 0, "max": 0}
    for name, value in effective.items():
        if found[name] != value:
            raise Mismatch(value, found[name])


def origin(case: Case) -> None:
    """Check that an origin is read back with its kind and names, or refused.

    FTL's text is translated to redrive's, which separates the names by a slash and adds the occurrence or the event.
    """
    data = read(
        case.data, "input", "kind", "module", "verb", "fsm", "key", "subscription", "error", required=("input",)
    )
    prefix, _, rest = data["input"].partition(":")
    found = read_origin(_FORMS.get(prefix, f"{prefix}:{{}}").format(*_parts(prefix, rest)))
    if data.get("error"):
        if found is not None:
            raise Mismatch("a refusal", str(found))
        return
    kind, expected = word(data["kind"], _ORIGINS)
    answer = None if found is None else (found.kind, found.name, found.part.partition("#")[0])
    if answer is None or answer[: 1 + len(names := expected(data))] != (kind, *names):
        raise Mismatch(str((kind, *expected(data))), str(answer))


# What redrive writes for each prefix of FTL. A subscription of FTL names no topic.
_FORMS = {
    "cron": f"{Kind.CRON}:{{}}/2026-01-01T00:00:00Z",
    "fsm": f"{Kind.MACHINE}:{{}}/{{}}",
    "sub": f"{Kind.TOPIC}:topic/{{}}#7",
}

# A key of FTL's crons has the module, the verb and a random end.
_CRON = re.compile(r"crn-([^-]+)-([^-]+)-[^-]+")


def _parts(prefix: str, rest: str) -> tuple[str, ...]:
    """Return the names in an origin of FTL; a key may contain the separator."""
    if prefix == "cron":
        match = _CRON.fullmatch(rest)
        if match is None:
            raise UnknownWord(f"{rest!r} (known: crn-module-verb-random)")
        return (f"{match[1]}.{match[2]}",)
    if prefix == "fsm":
        name, _, key = rest.partition(":")
        return (name, key)
    return (rest,)


_ORIGINS: dict[str, tuple[Kind, Callable[[Any], tuple[str, ...]]]] = {
    "cron": (Kind.CRON, lambda data: (f"{data['module']}.{data['verb']}",)),
    "fsm": (Kind.MACHINE, lambda data: (data["fsm"], data["key"])),
    "pubsub": (Kind.TOPIC, lambda data: ("topic", data["subscription"])),
}


def _add(machine: Machine, name: str, **options: Any) -> Any:
    """Register a state with an event class of its own."""
    if not isinstance(name, str):
        raise UnknownWord(f"{name!r} (known: the name of a state)")

    def handler(event: Any) -> None: ...

    handler.__annotations__["event"] = make_dataclass(f"Event{name}", [])
    return machine.state(name=name, **options)(handler)
