"""The tables of orders and payments."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The first tables."""

    operations: ClassVar = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("cents", models.IntegerField()),
                ("paid", models.BooleanField(default=False)),
            ],
        ),
        migrations.CreateModel(
            "Payment",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("cents", models.IntegerField()),
                ("order", models.ForeignKey("shop.Order", on_delete=django.db.models.deletion.CASCADE)),
            ],
        ),
    ]
