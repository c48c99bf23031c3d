"""The table as a model of Django; imported when Django has been set up."""

from __future__ import annotations

import functools

from django.db import connection, models

from redrive.contrib.refresh.django import RefreshFields

__all__ = ["made"]


@functools.cache
def made():
    """The model, with its table."""

    class BigTable(RefreshFields):
        """Something to be kept fresh."""

        plan = models.TextField(default="")

        class Meta(RefreshFields.Meta):
            """Of an app that there is."""

            app_label = "sample"

    with connection.schema_editor() as editor:
        editor.create_model(BigTable)
    return BigTable
