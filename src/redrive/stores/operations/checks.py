"""The invariants of the engine as statements. PURE.

Each rule is a statement that returns the rows that violate it, each with a sentence; on a healthy database it returns
no row, at any time and after any crash. Each statement reads one snapshot, so concurrent work does not disturb it.
Rules about all jobs read a range of ids at a time, and the others small indexes, so the check can run in production.

=============  ======================================================================================================
rule           is violated if
=============  ======================================================================================================
``sequences``  the next id or lease was handed out already
``leases``     two jobs have, or had, one lease; or a job had one that was not handed out yet
``holders``    a job runs on an unknown worker
``limits``     more attempts run now than the limit of their queue or partition allowed when they began
``attempts``   an attempt was counted and its end is not in the history: a job was handed out while it had a lease
``overlaps``   an attempt began more than a minute before the one before had ended
``settled``    a job is still under a lease that has ended in the history
``failures``   a job counts more failures than its history has
``due``        a retry is due at another time than was decided
``catches``    a catch job is not about a dead job that it catches
``keys``       a key is held by the wrong job, or not by the right one
``payloads``   an unfinished job has no arguments
``columns``    a job has a column that its state does not have, or lacks one
``results``    a job that has not succeeded has a result
``orphans``    something belongs to a job that is not there
``refreshes``  a tracked item waits for the wrong job, or an attempt for no item
``crons``      the last job of a cron was made for something else
``machines``   an instance waits for a transition that has ended or is not its own, or has left one behind
``topics``     a shard has no feeder of its own, or a position outside of a window or ahead of the server
``runs``       a run and its job do not belong together; a step, signal or wait of it leads nowhere; or a held run lacks
               a step before one that it has
=============  ======================================================================================================

A check sees rows, so it cannot see: that a limit or a rate was exceeded by attempts that have ended (history does not
say which places they took); that a stale completion was accepted as the one of the present lease, since nothing but the
present lease is then in the row and in the history; that a handler ran without a claim, or longer than its lease; that
one lease was held by two jobs with ids more than a stride apart; and whatever was pruned. The simulation of whole
fleets, which sees each step, looks for these.
"""

from __future__ import annotations

import msgspec

from redrive.engine.records import Finding
from redrive.engine.settle import CATCH_HISTORY
from redrive.stores.query import Query, Statements, reads

#: The number of ids that one transaction checks.
STRIDE = 10_000

#: The largest number of findings of one rule in one stride.
MOST = 100


class Checked(msgspec.Struct, frozen=True, gc=False):
    """The result of a check."""

    findings: tuple[Finding, ...]
    last_id: int | None  # the last job that was checked; None when there are no more


@reads
def check(after_id: int = 0, *, stride: int = STRIDE) -> Statements[Checked]:
    """Check the jobs with ids larger than `after_id`; at 0 also the rules that are not about single jobs."""
    until = after_id + stride
    bound: dict[str, object] = {"count": MOST}
    queries = []
    if after_id == 0:
        queries = [
            Query("check_sequences", bound, into=Finding),
            Query("check_leases", bound, into=Finding),
            Query("check_holders", bound, into=Finding),
            Query("check_limits", bound, into=Finding),
            Query("check_refreshes", bound, into=Finding),
            Query("check_crons", bound, into=Finding),
            Query("check_machines", bound, into=Finding),
            Query("check_topics", bound, into=Finding),
        ]
    window = bound | {"after_id": after_id, "until": until}
    queries += [
        Query("check_settled", window, into=Finding),
        Query("check_failures", window | {"history": CATCH_HISTORY}, into=Finding),
        Query("check_numbers", window | {"history": CATCH_HISTORY}, into=Finding),
        Query("check_overlaps", window, into=Finding),
        Query("check_repeats", window, into=Finding),
        Query("check_due", window, into=Finding),
        Query("check_catches", window, into=Finding),
        Query("check_keys_missing", window, into=Finding),
        Query("check_keys_stray", window, into=Finding),
        Query("check_payloads", window, into=Finding),
        Query("check_columns", window, into=Finding),
        Query("check_results", window, into=Finding),
        Query("check_orphans", window, into=Finding),
        Query("check_superseded", window, into=Finding),
        Query("check_moves", window, into=Finding),
        Query("check_runs", window, into=Finding),
        Query("check_holes", window, into=Finding),
    ]
    found: list[Finding] = []
    for query in queries:
        found += yield query
    newest = yield Query("newest")
    return Checked(tuple(found), until if until < (newest[0][0] or 0) else None)
