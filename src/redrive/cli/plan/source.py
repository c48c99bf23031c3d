"""The argument of ``redrive plan``: a directive, JSON, or a file with either.

An argument is a file if it could not be a directive: it begins with ``@``, contains a slash, or is one word that ends
in ``.json``. ``5 1s catch tasks.json`` remains a directive with the catch task ``tasks.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import typer

from redrive.errors import ConfigurationError, PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy import Policy
from redrive.visible import visible

# Characters of a line of JSON on either side of its fault.
_SHOWN = 40
_OPENINGS = frozenset('{["')


@dataclass(frozen=True, slots=True)
class Read:
    """A policy, and as its name its directive if it has one, otherwise its file or text."""

    name: str
    policy: Policy


def read_policy(origin: str, text: str, *, strict: bool = False) -> Read:
    """Parse a directive, exactly as FTL does if ``strict``, or JSON; the origin is that of `find`.

    Raise `ConfigurationError` if ``strict`` was given for JSON, and `PolicyError` if the policy is not valid.
    """
    if origin.lower().endswith(".json") or text.lstrip()[:1] in _OPENINGS:
        if strict:
            raise ConfigurationError("--strict is about directives, and this policy is JSON")
        policy = _of_json(origin, text)
        return Read(_directive(policy) or visible(origin) or "policy", policy)
    policy = Policy.parse(text, strict=strict)
    return Read(_directive(policy) or visible(text), policy)


def find(given: str) -> tuple[str, str]:
    """Return the origin of the text (empty for the command line) and the text.

    The argument is the text itself, ``path/to/policy.json``, ``@file``, or ``-`` for standard input. Raise
    `ConfigurationError` if the file cannot be read.
    """
    if given == "-":
        return "standard input", _decode("standard input", typer.get_binary_stream("stdin").read())
    if given == "@":
        raise ConfigurationError("name a file after the @, as in @policy.txt")
    path = _path(given)
    if path is None:
        return "", given
    try:
        return path.name, _decode(str(path), path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no file {path}") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _path(given: str) -> Path | None:
    if given.startswith("@"):
        return Path(given[1:])
    if given.lstrip()[:1] in _OPENINGS:
        return None
    name = given.lower().endswith(".json") and len(given.split()) == 1
    return Path(given) if name or "/" in given else None


def _decode(origin: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").strip("\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{origin} is not text in UTF-8: byte {error.start + 1} is wrong") from error


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
