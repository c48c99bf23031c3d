"""What has arrived for a run and is not received yet.

A run may have more unread signals than one claim reads. The others are read by the name that the body waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter

from redrive.engine.runs import RunState, SignalRecord
from redrive.stores.operations.runs.steps import UNREAD, Arrivals


class Inbox:
    """The unread signals of a run, the emitted values and the ends of children that it waits for."""

    def __init__(self, state: RunState) -> None:
        self.signals: list[SignalRecord] = list(state.signals)
        self.emits = {each.name: each for each in state.emits}
        self.children = {each.job_id: each for each in state.children}
        #: True if the database may have more unread signals than were read.
        self.is_partial = len(state.signals) >= UNREAD
        # A signal that was received is still unread in the database until its row is written.
        self._seen = {each.id for each in state.signals}

    def add(self, arrived: Arrivals) -> bool:
        """Add what is new, and return True if something is."""
        signals, emits, children = arrived
        self.is_partial = self.is_partial or len(signals) >= UNREAD
        before = len(self.emits) + len(self.children)
        self.emits.update({each.name: each for each in emits})
        self.children.update({each.job_id: each for each in children})
        # Of a partial inbox only the waits themselves find out if something is new for them.
        return self.add_signals(signals) or self.is_partial or len(self.emits) + len(self.children) > before

    def first(self, name: str, until: datetime | None) -> SignalRecord | None:
        """Return the first unread signal of a name, if it has come until an instant."""
        found = (each for each in self.signals if each.name == name and (until is None or each.at <= until))
        return next(found, None)

    def give_back(self, signals: Iterable[SignalRecord]) -> None:
        """Add signals that were received by a branch which was dropped before they were recorded."""
        self.signals = sorted((*self.signals, *signals), key=attrgetter("id"))

    def add_signals(self, signals: Sequence[SignalRecord]) -> bool:
        """Add signals that were not read before, and return True if there are some."""
        fresh = [each for each in signals if each.id not in self._seen]
        self._seen.update(each.id for each in fresh)
        self.signals = sorted((*self.signals, *fresh), key=attrgetter("id"))
        return bool(fresh)
