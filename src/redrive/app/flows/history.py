"""The history of a run as a value, to be replayed without a database."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.runs import RunRecord, StepRecord
from redrive.errors import ConfigurationError
from redrive.stores.operations.managing_runs import Timeline

#: The number of the form of exported histories.
FORM = 1


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its arguments and its recorded steps; see `redrive.testing.replay`.

    Attributes:
        run: the run.
        task: the workflow.
        state: of its job.
        started_at: start of its first attempt; that of its enqueue if it has none.
        arguments: JSON.
        result: JSON; None unless it succeeded.
        steps: the recorded steps.
        form: the number of this form.
    """

    run: RunRecord
    task: str
    state: State
    started_at: datetime
    arguments: str
    result: str | None
    steps: tuple[StepRecord, ...]
    form: int = FORM

    def to_json(self) -> str:
        """Return the history as JSON, with a line for each step."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> RunHistory:
        """Read what `to_json` has written.

        Raises:
            ConfigurationError: it is something else.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigurationError(
                f"this is no history of a run, as redrive runs export writes it: {error}"
            ) from error


def export(found: Timeline, payload: bytes | None, result: bytes | None) -> RunHistory:
    """Return the history of a run."""
    return RunHistory(
        run=found.run,
        task=found.job.task,
        state=found.job.state,
        started_at=found.job.started_at or found.job.enqueued_at,
        arguments=(payload or b"{}").decode(),
        result=None if result is None else result.decode(),
        steps=found.steps,
    )
