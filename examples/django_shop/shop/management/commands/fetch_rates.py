"""``manage.py fetch_rates``: run by cron; it retries by itself, and reports the result to cron by its exit status."""

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
