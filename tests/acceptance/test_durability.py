"""A server that is configured to acknowledge commits before they are on its disk, and dies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App
from tests.acceptance.servers import PostgresServer, own

pytestmark = pytest.mark.acceptance

JOBS = 30


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Start a server with commits that reach the disk up to ten seconds late, unless a client objects."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-lax-"))
    with own(folder, "synchronous_commit=off", "wal_writer_delay=10s") as running:
        yield running


def test_no_acknowledged_job_is_lost_with_the_server(server: PostgresServer):
    """Each job with a returned enqueue exists after the server was killed and has recovered."""
    app = App(server.url())

    @app.task
    def note(number: int) -> None:
        """Do nothing."""

    acknowledged = {note.enqueue(number).id for number in range(JOBS)}
    app.close()
    server.restart()
    found = {job.id for job in app.jobs.select()}
    again = note.enqueue(JOBS).id
    app.close()

    assert (acknowledged, False) == (found, again in acknowledged)
