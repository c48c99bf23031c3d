"""The table as a model of Django; import it after Django's setup."""

from __future__ import annotations

import functools

from django.db import connection, models

from redrive.contrib.refresh.django import RefreshFields

__all__ = ["made"]


@functools.cache
def made():
    """Create the model's table."""

    class BigTable(RefreshFields):
        """A model with refreshes."""

        plan = models.TextField(default="")

        class Meta(RefreshFields.Meta):
            """Options that name an installed app."""

            app_label = "sample"

    with connection.schema_editor() as editor:
        editor.create_model(BigTable)
    return BigTable
