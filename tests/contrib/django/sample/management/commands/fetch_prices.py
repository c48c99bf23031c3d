"""A command that fails a given number of times."""

from __future__ import annotations

from typing import ClassVar

from redrive.contrib.django import RetryingCommand


class Command(RetryingCommand):
    """Fetches prices from a supplier that fails sometimes."""

    retry: ClassVar = "2 1s"
    retry_on: ClassVar = (ConnectionError, LookupError)
    troubles: ClassVar[list[Exception]] = []
    attempts: ClassVar[list[str]] = []

    def add_arguments(self, parser):
        """Take the name of the supplier."""
        parser.add_argument("supplier")

    def handle(self, *args, supplier, **options):
        """Fetch."""
        self.attempts.append(supplier)
        if self.troubles:
            raise self.troubles.pop(0)
        self.stdout.write("fetched")
