"""The invariants of the engine as questions to the database. PURE.

Each rule is a statement that answers the rows that break it, with a sentence each; on a healthy database it answers
nothing, at any moment and whatever has crashed before. Each statement sees one snapshot, so that work that goes on
meanwhile is no trouble. Rules about all jobs look at a stride of ids at a time, and the others walk small indexes: so
that it may be asked in production.

=============  ======================================================================================================
rule           is broken where
=============  ======================================================================================================
``sequences``  the next id or lease was handed out already
``leases``     two jobs have, or had, one lease; or a job had one that was not handed out yet
``holders``    a job runs on an unknown worker
``limits``     more attempts run now than the limit of their queue or partition allowed when they began
``attempts``   an attempt was counted and its end is not in the history: a job was handed out while it had a lease
``overlaps``   an attempt began more than a minute before the one before had ended
``settled``    a job is still under a lease that has ended in the history
``successes``  a job has succeeded and its history has no success, or two
``failures``   a job counts more failures than its history has
``due``        a retry is due at another time than was decided
``catches``    a catch job is not about a dead job that it catches
``keys``       a key is held by the wrong job, or not by the right one
``payloads``   an unfinished job has no arguments
``results``    a job that has not succeeded has a result
``orphans``    something belongs to a job that is not there
``refreshes``  a tracked item waits for the wrong job, or an attempt for no item
``crons``      the last job of a cron was made for something else
=============  ======================================================================================================

A check sees rows, so it cannot see: that a limit or a rate was exceeded by attempts that have ended (history does not
say which places they took); that a stale completion was accepted as the one of the present lease, since nothing but the
present lease is then in the row and in the history; that a handler ran without a claim, or longer than its lease; that
one lease was held by two jobs with ids more than a stride apart; and whatever was pruned. The simulation of whole
fleets, which sees each step, looks for these.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.engine.records import Finding
from redrive.stores.query import Query, Rows, Steps, reads

#: The number of ids that one transaction checks.
STRIDE = 10_000

#: The largest number of findings of one rule in one stride.
MOST = 100


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check."""

    findings: tuple[Finding, ...]
    # The last job that was checked; None when there are no more.
    last_id: int | None


@reads
def check(after_id: int = 0, *, stride: int = STRIDE) -> Steps[Checked]:
    """Check the jobs with ids larger than `after_id`; at 0 also the rules that are not about single jobs."""
    until = after_id + stride
    found = list((yield from _whole())) if after_id == 0 else []
    found += yield from _jobs(after_id, until)
    found += yield from _parts(after_id, until)
    newest = yield Query("newest")
    return Checked(tuple(found), until if until < (newest[0][0] or 0) else None)


def _whole() -> Steps[Rows]:
    """Check the rules that are not about single jobs, or about running ones only."""
    bound = {"count": MOST}
    found = [*(yield Query("check_sequences", bound, into=Finding))]
    found += yield Query("check_leases", bound, into=Finding)
    found += yield Query("check_holders", bound, into=Finding)
    found += yield Query("check_limits", bound, into=Finding)
    found += yield Query("check_refreshes", bound, into=Finding)
    found += yield Query("check_crons", bound, into=Finding)
    return found


def _jobs(after_id: int, until: int) -> Steps[Rows]:
    """Compare the jobs of a stride with their histories."""
    stride = {"after_id": after_id, "until": until, "count": MOST}
    found = [*(yield Query("check_settled", stride, into=Finding))]
    found += yield Query("check_successes", stride, into=Finding)
    found += yield Query("check_failures", stride, into=Finding)
    found += yield Query("check_numbers", stride, into=Finding)
    found += yield Query("check_overlaps", stride, into=Finding)
    found += yield Query("check_repeats", stride, into=Finding)
    found += yield Query("check_due", stride, into=Finding)
    found += yield Query("check_catches", stride, into=Finding)
    return found


def _parts(after_id: int, until: int) -> Steps[Rows]:
    """Check the rows that belong to the jobs of a stride."""
    stride = {"after_id": after_id, "until": until, "count": MOST}
    found = [*(yield Query("check_keys_missing", stride, into=Finding))]
    found += yield Query("check_keys_stray", stride, into=Finding)
    found += yield Query("check_payloads", stride, into=Finding)
    found += yield Query("check_results", stride, into=Finding)
    found += yield Query("check_orphans", stride, into=Finding)
    found += yield Query("check_superseded", stride, into=Finding)
    return found
