"""The argument of ``redrive plan``: a directive, JSON, or a file with either.

An argument is a file if it could not be a directive: it begins with ``@``, contains a slash, or is one word that ends
in ``.json``. ``5 1s catch tasks.json`` remains a directive with the catch task ``tasks.json``.
"""

from __future__ import annotations

from pathlib import Path

import typer

from redrive.errors import ConfigurationError
from redrive.plan.read import OPENINGS


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
    if given.lstrip()[:1] in OPENINGS:
        return None
    name = given.lower().endswith(".json") and len(given.split()) == 1
    return Path(given) if name or "/" in given else None


def _decode(origin: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").strip("\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{origin} is not text in UTF-8: byte {error.start + 1} is wrong") from error
