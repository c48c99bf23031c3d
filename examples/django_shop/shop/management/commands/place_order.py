"""``manage.py place_order 1200``: an order, and the job that charges for it, both or neither."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from shop.models import Order
from shop.tasks import charge


class Command(BaseCommand):
    """Places an order."""

    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the amount."""
        parser.add_argument("cents", type=int)

    def handle(self, *_: object, cents: int, **options: object) -> None:
        """Store both in one transaction."""
        del options
        with transaction.atomic():
            order = Order.objects.create(cents=cents)
            job = charge.enqueue(order.pk)
        self.stdout.write(f"{order}, job {job.id}")
