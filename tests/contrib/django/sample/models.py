"""What the shop keeps."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Charge(models.Model):
    """Money that was taken; nothing in the table keeps it from being taken twice."""

    cents = models.IntegerField()
    note = models.TextField()

    class Meta:
        """How the table is called."""

        app_label = "sample"
        db_table = "sample_charge"
        constraints: ClassVar[list] = []

    def __str__(self) -> str:
        """Return the customer."""
        return f"{self.cents} ({self.note})"
