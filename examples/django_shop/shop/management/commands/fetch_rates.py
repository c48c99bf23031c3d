"""``manage.py fetch_rates``: run by cron; it retries by itself, and its exit status tells cron what to think of it."""

from __future__ import annotations

from redrive.contrib.django import RetryingCommand
from shop import provider


class Command(RetryingCommand):
    """Asks the provider what he charges."""

    help = __doc__
    retry = "3 50ms"
    retry_on = ConnectionError

    def handle(self, *_: object, **options: object) -> None:
        """Ask."""
        del options
        provider.charge(0, key="rates")
        self.stdout.write("fetched")
