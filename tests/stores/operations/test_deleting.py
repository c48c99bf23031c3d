"""The statements of deletes."""

from __future__ import annotations

from redrive.engine.records import Filter
from redrive.stores.operations import deleting
from tests.engine.helpers import job
from tests.stores.operations.conversing import CLOCK, converse


def test_a_locked_job_stays():
    """Jobs that another transaction has locked stay, with the reason."""
    done, asked = converse(deleting.delete(Filter(all=True)), CLOCK, [job()], [])

    assert ((), ((job().id, "is being changed by another transaction: try again"),)) == (done.ids, done.kept)
    assert "job_locks" == asked[-1].name


def test_a_job_with_an_older_catch_job_stays():
    """Jobs that the statement does not delete stay, with the reason."""
    done, _ = converse(deleting.delete(Filter(all=True)), CLOCK, [job(state="dead")], [job(state="dead")], [], [])

    assert ((), ((job().id, "stays: another catch job must be deleted first"),)) == (done.ids, done.kept)
