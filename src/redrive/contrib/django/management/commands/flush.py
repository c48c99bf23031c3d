"""Django's command ``flush``, which also deletes redrive's jobs; ``TransactionTestCase`` calls it after each test."""

from __future__ import annotations

from django.core.management.commands import flush

from redrive.contrib.django.apps import redrive_backends
from redrive.stores.operations import retention


class Command(flush.Command):  # type: ignore[misc] # Django has no type information
    """Delete all data of a database, jobs, schedules and settings of queues included."""

    def handle(self, **options: object) -> None:
        """Delete the data, after a confirmation."""
        database = options["database"]
        # Django's command asks too, but does not return the answer.
        if options["interactive"]:
            question = f"This deletes all data of the database {database!r}, jobs included. Type 'yes' to go on: "
            if input(question) != "yes":
                self.stdout.write("Nothing was deleted.")
                return
        super().handle(**{**options, "interactive": False})
        for backend in redrive_backends():
            if backend.app.options.database == database:
                backend.app.store.run(retention.empty())
