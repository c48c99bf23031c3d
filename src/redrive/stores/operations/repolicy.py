"""Gives waiting jobs the present policies of their tasks. PURE.

A job keeps the policy under which it was enqueued, so a deployment does not change waiting jobs. An operator can apply
the present policy to them. It decides from the next failure on: stored due times stay, because no delay is computed
twice, and the counters of rules start over, because they belong to the rules of the old policy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lease import limit_of
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import Hold, JobRecord
from redrive.engine.select import Filter
from redrive.stores.operations.admin import selected
from redrive.stores.operations.audit import UNKNOWN, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Steps, writes


@dataclass(frozen=True, slots=True)
class Repolicied:
    """The result of a repolicy.

    Attributes:
        ids: the jobs that have another policy now, or would have in a dry run; oldest first.
        kept: the jobs that match but keep their policy, each with the reason; jobs that have the present policy already
            are in neither.
        last_id: the last job that was read; None when no more match.
    """

    ids: tuple[int, ...]
    kept: tuple[tuple[int, str], ...] = ()
    last_id: int | None = None


# A job that is held because its policy cannot be read is released: it is due at once, or the end of its lost attempt is
# decided at once. A catch job then gets the policy of its own task, since that of its parent cannot be read.
@writes
def repolicy(
    wanted: Filter,
    policies: Mapping[str, FrozenPolicy],
    *,
    dry_run: bool = False,
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Steps[Repolicied]:
    """Give unfinished jobs the present policies of their tasks; at most ``wanted.limit`` jobs are read."""
    at = yield from instant(now)
    jobs = yield from selected(replace(wanted, oldest_first=True))
    kept = [(job.id, why) for job in jobs if (why := _obstacle(job, policies)) is not None]
    stay = {number for number, _ in kept}
    changed: dict[FrozenPolicy, list[int]] = defaultdict(list)
    for job in jobs:
        if job.id not in stay and (policies[job.task].policy != job.policy or job.hold is Hold.BAD_POLICY):
            changed[policies[job.task]].append(job.id)
    ids = sorted(number for each in changed.values() for number in each)
    if ids and not dry_run:
        rows = [{"digest": policy.digest, "document": policy.document} for policy in changed]
        yield Query("policy_put", many=rows)
        for policy, numbers in changed.items():
            timeout = limit_of(policy.policy)
            params = {"ids": numbers, "policy": policy.digest, "timeout_for": timeout, "now": at}
            yield Query("repolicy", params)
        yield from record(at, actor, "repolicy", ids=ids, filter=conditions(wanted))
    return Repolicied(tuple(ids), tuple(kept), jobs[-1].id if len(jobs) == wanted.limit else None)


def _obstacle(job: JobRecord, policies: Mapping[str, FrozenPolicy]) -> str | None:
    if job.state in FINAL:
        return f"is {job.state}"
    is_held = job.hold is Hold.BAD_POLICY
    if job.state is State.RUNNING and not is_held:
        return "runs: it keeps its policy until this attempt has ended"
    if job.parent_id is not None and not is_held:
        return f"is a catch job: it goes by the policy of job {job.parent_id}"
    if job.task not in policies:
        return f"has the task {job.task}, which is not in this app"
    return None
