"""What the shop keeps."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    cents = models.IntegerField()
    paid = models.BooleanField(default=False)

    def __str__(self) -> str:
        """Return a short name for lists."""
        return f"order {self.pk}"


class Payment(models.Model):
    """Money that was taken. No constraint keeps an order from being paid for twice; the transaction does."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    cents = models.IntegerField()

    def __str__(self) -> str:
        """Return a short name for lists."""
        return f"{self.cents} for order {self.order_id}"
