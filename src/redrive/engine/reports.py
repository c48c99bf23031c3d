"""The report of the end of a job to its origin. PURE."""

from __future__ import annotations

from datetime import datetime

from redrive.engine.lifecycle import State
from redrive.engine.origin import Effect, OriginResult, read_origin
from redrive.engine.outcome import Cancelled, Failed, Lost, Outcome, Released, Settlement, Unreadable
from redrive.engine.records import Claim, JobRecord

# The golden ratio: the fractional parts of its multiples are spread evenly. `spread` serves jobs that end without a
# process that could draw a sample.
_GOLDEN = 0.6180339887498949

# Reasons of permanent failures that are defects of the program; an item is not given up for them.
TECHNICAL = frozenset({"BAD_PAYLOAD", "BAD_POLICY", "BAD_RESULT"})


def succeeded(claim: Claim, sample: float, effects: tuple[Effect, ...]) -> OriginResult | None:
    """Return the report of a succeeded job; None if it has no known origin."""
    origin = read_origin(claim.origin)
    if origin is None:
        return None
    return OriginResult(
        origin, claim.id, succeeded=True, sample=sample, effects=effects, attempt=claim.attempt, catches=claim.parent_id
    )


# Each attempt of a refresh is a job of its own with a single attempt: the `RefreshPolicy` decides about its failure,
# not the policy of the job. The id of the job is the token of the attempt. Ids never repeat, so a superseded job ends
# under an id that the row no longer has, and changes nothing.
def report(claim: Claim, outcome: Outcome, sample: float, decided: Settlement) -> OriginResult | None:
    """Return the report of a job that ended without success; None if it has no known origin."""
    origin = read_origin(claim.origin)
    if origin is None:
        return None
    lasting = False
    match outcome:
        case Failed(failure):
            final = None if failure.reason in TECHNICAL else failure.permanent
            why, hint, lasting = failure.message, failure.hint, failure.lasting is not None
        case Lost(why):
            final = hint = None
            sample = spread(claim.id)
        case Cancelled(why) | Unreadable(why) | Released(why, started=True):
            final = hint = None
        case _:
            why, final, hint = "it could not start in time", None, None
    return OriginResult(
        origin,
        claim.id,
        succeeded=False,
        dead=decided.state is State.DEAD,
        why=why,
        permanent=final,
        lasting=lasting,
        retry_after=hint,
        sample=sample,
        began_at=began_at(claim),
        attempt=decided.attempt,
        catches=claim.parent_id,
        has_catch=decided.catch is not None,
    )


def ended(job: JobRecord, why: str) -> OriginResult | None:
    """Return the report of a job that was ended from outside; None if it has no known origin."""
    origin = read_origin(job.origin)
    if origin is None:
        return None
    return OriginResult(
        origin,
        job.id,
        succeeded=False,
        why=why,
        sample=spread(job.id),
        began_at=began_at(job),
        attempt=job.attempt,
        catches=job.parent_id,
    )


def began_at(job: Claim | JobRecord) -> datetime | None:
    """Return when the time limit of an attempt began to count; None while the job waits in its queue."""
    # A snooze belongs to the same attempt, which began with its first claim.
    if job.snoozes:
        return job.started_at
    return None if job.lease_id is None else job.claimed_at


def spread(job_id: int) -> float:
    """Return a sample for jitter in [0, 1), computed from a job id."""
    return job_id * _GOLDEN % 1.0
