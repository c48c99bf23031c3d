"""The errors of a pass that were recorded, so that another pass would raise them again."""

from __future__ import annotations

import msgspec

from redrive.app.flows.run_errors import rebuilt
from redrive.engine.outcome import Failed, Outcome
from redrive.engine.runs import StepError, StepRecord
from redrive.errors.foreign import is_a
from redrive.runtime.handlers import outcome_of


class RecordedErrors:
    """Errors with the paths of their rows.

    Attributes:
        asks: the number of the calls of the body until now.
    """

    def __init__(self) -> None:
        self._recorded: list[tuple[BaseException, str, int]] = []
        self.asks = 0

    def outcome_of(self, error: BaseException) -> Outcome:
        """Return the outcome of the run for an error that leaves its body."""
        outcome = outcome_of(error)
        if isinstance(outcome, Failed) and self.is_recorded(error):
            # Another pass would raise it again.
            message = outcome.failure.permanent or outcome.failure.message
            return msgspec.structs.replace(outcome, failure=outcome.failure._replace(permanent=message))
        return outcome

    def is_recorded(self, error: BaseException) -> bool:
        """Return True if an error, or one of its causes, was recorded, so that another pass would raise it again."""
        return self.path_of(error) is not None

    def path_of(self, error: BaseException | None) -> str | None:
        """Return the path of the row of an error or of one of its causes; None if it was not recorded."""
        found = self._found(error)
        return None if found is None else found[0]

    def has_reacted(self, error: BaseException | None) -> bool:
        """Return True if an error was recorded, and the body has called the flow since."""
        found = self._found(error)
        return found is not None and self.asks > found[1]

    def _found(self, error: BaseException | None) -> tuple[str, int] | None:
        seen: set[int] = set()
        link = error
        while link is not None and id(link) not in seen:
            if is_a(link, BaseExceptionGroup):
                return next((found for each in link.exceptions if (found := self._found(each)) is not None), None)
            for each, path, asks in self._recorded:
                if link is each:
                    return path, asks
            seen.add(id(link))
            link = link.__cause__
        return None

    def of(self, row: StepRecord) -> Exception:
        """Return the error of a step that has failed for good, for the body to receive."""
        error = rebuilt(row.name, row.error or StepError((), "no error was recorded", "ERROR"))
        self.note(error, row.path)
        return error

    def note(self, error: BaseException, path: str) -> None:
        """Note an error that was recorded: another pass would raise it again."""
        self._recorded.append((error, path, self.asks))
