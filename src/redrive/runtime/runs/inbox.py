"""What has arrived for a run and is not received yet."""

from __future__ import annotations

from redrive.engine.runs import RunState, SignalRecord
from redrive.stores.operations.runs.steps import Arrivals


class Inbox:
    """The unread signals of a run, the emitted values and the ends of children that it waits for."""

    def __init__(self, state: RunState) -> None:
        self.signals: list[SignalRecord] = list(state.signals)
        self.emits = {each.name: each for each in state.emits}
        self.children = {each.job_id: each for each in state.children}
        # A signal that was received is still unread in the database until its row is written.
        self._seen = {each.id for each in state.signals}

    def add(self, arrived: Arrivals) -> bool:
        """Add what is new, and return True if something is."""
        signals, emits, children = arrived
        fresh = [each for each in signals if each.id not in self._seen]
        before = len(self.emits) + len(self.children)
        self._seen.update(each.id for each in fresh)
        self.signals += fresh
        self.emits.update({each.name: each for each in emits})
        self.children.update({each.job_id: each for each in children})
        return bool(fresh) or len(self.emits) + len(self.children) > before
