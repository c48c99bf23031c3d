"""A retry policy from a text: a directive or JSON. PURE."""

from __future__ import annotations

import json
from dataclasses import dataclass

from redrive.errors import ConfigurationError, PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy import Policy
from redrive.visible import visible

# Characters of a line of JSON on either side of its fault.
_SHOWN = 40

#: The characters with which a policy as JSON may begin.
OPENINGS = frozenset('{["')


@dataclass(frozen=True, slots=True)
class Read:
    """A policy, and as its name its directive if it has one, otherwise its file or text."""

    name: str
    policy: Policy


def read_policy(origin: str, text: str, *, strict: bool = False) -> Read:
    """Parse a directive, exactly as FTL does if ``strict``, or JSON; the origin is the name of a file, or empty.

    Raise `ConfigurationError` if ``strict`` was given for JSON, and `PolicyError` if the policy is not valid.
    """
    if origin.lower().endswith(".json") or text.lstrip()[:1] in OPENINGS:
        if strict:
            raise ConfigurationError("--strict is about directives, and this policy is JSON")
        policy = _of_json(origin, text)
        return Read(_directive(policy) or visible(origin) or "policy", policy)
    policy = Policy.parse(text, strict=strict)
    return Read(_directive(policy) or visible(text), policy)


def _of_json(origin: str, text: str) -> Policy:
    place = f"{origin}: " if origin else ""
    try:
        return Policy.from_dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise _unreadable(place or "JSON, ", error) from error
    except PolicyError as error:
        raise PolicyValueError(f"{place}{error}") from error
    except RecursionError as error:
        raise PolicyValueError(f"{place}the policy is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise PolicyValueError(f"{place}{error}") from error


def _unreadable(place: str, error: json.JSONDecodeError) -> PolicyError:
    """Return an error with the line and a caret; of a long line only the part around the position."""
    line = [*error.doc.split("\n"), ""][error.lineno - 1]
    at = error.colno - 1
    start = max(0, at - _SHOWN)
    problem = f"{place}line {error.lineno} cannot be read"
    valid = error.msg[0].lower() + error.msg[1:]
    return PolicySyntaxError.with_caret(line[start : at + _SHOWN], at - start, problem, valid)


def _directive(policy: Policy) -> str:
    try:
        return policy.directive()
    except PolicyError:
        return ""
