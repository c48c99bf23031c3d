"""Errors of steps as they are stored, and as a replay raises them.

A replay raises an exception of the same class with the same arguments, if the class can be imported and the arguments
are JSON; otherwise one of the class with the message; and `redrive.errors.StepFailed` if there is no such class. The
first pass raises the same, so that a body sees one behaviour. Of a traceback only the place in the user's code is
stored, and is a note of the exception.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from redrive.app.loading import import_module
from redrive.app.tasks.failures import ERROR_TEXT, clean
from redrive.engine.error_groups import place
from redrive.engine.outcome import Failed
from redrive.engine.runs import StepError
from redrive.errors import StepFailed

#: The largest size of stored arguments, in bytes.
_MOST = 10_000


def stored(outcome: Failed, error: BaseException | None = None) -> StepError:
    """Return the error of a failed try as it is stored; ``error`` gives its arguments."""
    failure = outcome.failure
    return StepError(
        failure.types,
        clean(failure.message, ERROR_TEXT),
        failure.reason,
        None if error is None else _arguments(error),
        place(outcome.traceback),
    )


def _arguments(error: BaseException) -> str | None:
    try:
        given = _given(error)
        raw = msgspec.json.encode(given)
        same = msgspec.json.decode(raw) == given
    except Exception:  # noqa: BLE001 - the objects of the user may raise anything
        return None
    return raw.decode() if same and len(raw) <= _MOST else None


def _given(error: BaseException) -> list[Any]:
    """Return the arguments that make the exception anew: those for pickle, where a constructor takes other ones."""
    reduced = error.__reduce__()
    is_made = isinstance(reduced, tuple) and len(reduced) > 1 and reduced[0] is type(error)
    return list(reduced[1] if is_made else error.args)


def rebuilt(step: str, error: StepError) -> Exception:
    """Return the exception that a replay raises for a step that has failed for good, with a note of its place."""
    made = _rebuilt(step, error)
    if error.place is not None:
        made.add_note(f"step {step} failed at {error.place}")
    return made


def _rebuilt(step: str, error: StepError) -> Exception:
    kind = _class(error.types[0]) if error.types else None
    made = None if kind is None else _made(kind, error)
    if made is not None:
        return made
    name = error.types[0].removeprefix("builtins.") if error.types else ""
    return StepFailed(
        f"step {step} failed: {f'{name}: ' if name else ''}{error.message}",
        error_type=error.types[0] if error.types else "",
        reason=error.reason,
    )


def _class(name: str) -> type[Exception] | None:
    parts = name.split(".")
    for size in range(len(parts) - 1, 0, -1):
        module: Any = sys.modules.get(".".join(parts[:size]))
        if module is None:
            try:
                module = import_module(".".join(parts[:size]))
            except Exception:  # noqa: BLE001, S112 - the code of a module may raise anything
                continue
        for part in parts[size:]:
            module = getattr(module, part, None)
        if isinstance(module, type) and issubclass(module, Exception):
            return module
    return None


def _made(kind: type[Exception], error: StepError) -> Exception | None:
    """Return an exception of this class with the stored message; None if the class does not permit that."""
    if error.args is not None:
        try:
            made = kind(*msgspec.json.decode(error.args))
            if str(made) == error.message:
                return made
        except Exception:  # noqa: BLE001, S110 - its constructor may take other arguments
            pass
    try:
        made = kind.__new__(kind)
        made.args = (error.message,)
        return made if str(made) == error.message else None
    except Exception:  # noqa: BLE001 - the methods of a foreign exception may raise anything
        return None
