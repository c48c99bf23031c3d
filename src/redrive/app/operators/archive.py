"""Archives of ended jobs: one JSON object in a line for each job, written before the job is deleted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from redrive.engine.runs import RunRecord, RunState, StepRecord, in_order
from redrive.errors import ArchiveError
from redrive.stores.operations.deleting import ArchiveEntry

Archive: TypeAlias = str | Path | Callable[[Sequence[bytes]], object]
"""The path of a file to which lines are appended, or a function that stores lines; it raises if it cannot."""


def write(to: Archive, entries: Sequence[ArchiveEntry]) -> None:
    """Write jobs to an archive; when this returns, a file has reached the disk. Raise `ArchiveError` if that failed."""
    lines = [_line(entry) for entry in entries]
    if callable(to):
        to(lines)
        return
    try:
        with Path(to).open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ArchiveError(f"the archive {str(to)!r} cannot be written, and nothing was deleted: {error}") from error


def name(to: Archive) -> str:
    """Return the name of an archive for the audit log."""
    return getattr(to, "__qualname__", type(to).__name__) if callable(to) else str(Path(to).absolute())


def _line(entry: ArchiveEntry) -> bytes:
    job: dict[str, Any] = {field: getattr(entry.job, field) for field in entry.job.__struct_fields__}
    job |= {"policy": entry.job.policy.to_dict(), "tags": entry.tags}
    job |= {"payload": _json(entry.payload), "result": _json(entry.result), "history": entry.history}
    return msgspec.json.encode(job if entry.run is None else job | _of_run(entry.run))


def _of_run(state: RunState) -> dict[str, object]:
    """Return the run of a workflow, its steps in the order of their calls, and its unread signals."""
    run = {name: getattr(state.run, name) for name in RunRecord.__struct_fields__}
    steps = [
        {name: getattr(row, name) for name in StepRecord.__struct_fields__} | {"result": _json(row.result)}
        for row in in_order(state.steps)
    ]
    signals = [{"name": each.name, "at": each.at, "payload": _json(each.payload)} for each in state.signals]
    return {"run": run | {"values": _json(state.run.values)}, "steps": steps, "signals": signals}


def _json(raw: bytes | None) -> object:
    """Return stored JSON as a part of a line; what is none becomes a text."""
    if raw is None:
        return None
    try:
        return msgspec.Raw(msgspec.json.format(raw, indent=-1))
    except msgspec.DecodeError:
        return raw.decode(errors="replace")
