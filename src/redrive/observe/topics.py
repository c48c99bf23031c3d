"""The event of deliveries of topics. The worker that has called the handler emits it.

Events that fail become jobs, which emit the events of jobs.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import ClassVar

from redrive.observe.events import Event


class TopicDelivered(Event, kw_only=True):
    """The handler of a subscription has returned or failed, for one event or for a batch."""

    channel: ClassVar[str] = "redrive.topics"
    level: ClassVar[int] = logging.DEBUG
    labels: ClassVar[tuple[str, ...]] = ("topic", "subscription")
    outcome: ClassVar[str] = "delivered"
    topic: str
    subscription: str
    #: The number of events.
    count: int
    #: Of these, the number that has failed.
    failed: int
    #: The duration of the call.
    took: timedelta
    #: The time since the publish of the first event.
    waited: timedelta

    @property
    def name(self) -> str:
        """The name of the task of the subscription."""
        return f"{self.topic}.{self.subscription}"

    def __str__(self) -> str:
        events = "1 event" if self.count == 1 else f"{self.count} events"
        failed = f", {self.failed} of them failed" if self.failed else ""
        return f"{self.name} got {events} in {self.took.total_seconds():.3f} s{failed}"
