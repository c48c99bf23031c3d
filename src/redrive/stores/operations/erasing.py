"""Erases all that is stored under the value of one person: a tag, a key, a partition or an id. PURE.

`find` reads whole tables, because most keys have no index; it locks nothing. `erase` deletes what it has found, a batch
of jobs at a time, so that each transaction is short. A repeated call finds what the last one had to keep.

What runs is never erased: a job, a run with finished steps, a transition, an event before its delivery; only an attempt
of an item is cancelled. What is kept keeps what a repeated call needs to find it. The value is then replaced in the
texts that mention it, as in the audit log, whose entry about the erasure does not have it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from redrive.engine.lifecycle import FINAL
from redrive.engine.queue import QueueSettings
from redrive.engine.records import ENCODED, NEWEST, Filter, JobRecord
from redrive.engine.search import has_value, tag_of
from redrive.engine.topics import key_line
from redrive.errors import InstanceNotFound, MachineBusy, PayloadEncoded
from redrive.stores.operations import deleting
from redrive.stores.operations.admin import selected
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import end_job
from redrive.stores.operations.machines import manage as machines
from redrive.stores.operations.refresh import manage as refreshes
from redrive.stores.query import Query, Statements, reads, wakes

#: What stands in a text in place of the value.
ERASED: Final = "[erased]"

#: Jobs that one transaction deletes.
BATCH: Final = 200


class Found(msgspec.Struct, frozen=True, gc=False):
    """What is stored under a value.

    Attributes:
        jobs: ids, with the catch jobs, child runs and forks that followed.
        instances: machines and keys.
        items: refreshes and keys.
        events: the ids of events by their topics.
        values: the number of emitted values.
        requests: actors and keys of requests whose stored answers mention it.
        texts: the number of texts that mention it, by kind.
    """

    jobs: tuple[int, ...] = ()
    instances: tuple[tuple[str, str], ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    events: Mapping[str, tuple[int, ...]] = {}
    values: int = 0
    requests: tuple[tuple[str, str], ...] = ()
    texts: Mapping[str, int] = {}


class Erased(msgspec.Struct, frozen=True, gc=False):
    """The result of an erasure, or of a part of one.

    Attributes:
        counts: the number of rows that were deleted, or of texts that were changed, by kind; kinds without any are left
            out.
        kept: what was not erased, with the reasons.
    """

    counts: Mapping[str, int] = {}
    kept: tuple[str, ...] = ()

    @property
    def matched(self) -> bool:
        """False if nothing is stored under the value, as if it is misspelt."""
        return bool(self.counts or self.kept)

    def plus(self, other: Erased) -> Erased:
        """Return the result of both parts."""
        return Erased(dict(Counter(self.counts) + Counter(other.counts)), (*self.kept, *other.kept))


@reads
def find(word: str) -> Statements[Found]:
    """Return what is stored under a value."""
    instances, items, values = [], [], 0
    events: dict[str, set[int]] = {}
    for kind, name, part in (yield Query("erase_places", {"word": word})):
        match kind:
            case "instance":
                instances.append((name, part))
            case "item":
                items.append((name, part))
            case "event":
                events.setdefault(name, set()).add(int(part))
            case _:
                values += 1
    # A field of `search` has its value as a tag that may be shortened.
    tags = [*_partitions(word), tag_of(word) or word]
    given = {"word": word, "tags": tags, "partitions": _partitions(word)}
    new = {row[0] for row in (yield Query("erase_jobs", given))}
    new |= yield from _with_field(word)
    jobs = set(new)
    while new:
        new = {row[0] for row in (yield Query("erase_followers", {"ids": sorted(new)}))} - jobs
        jobs |= new
    requests = yield from _requests(word)
    texts = yield from _mentions(word)
    return Found(
        tuple(sorted(jobs)),
        tuple(instances),
        tuple(items),
        {topic: tuple(sorted(ids)) for topic, ids in events.items()},
        values,
        tuple(requests),
        dict(Counter(kind for kind, *_ in texts)),
    )


def _with_field(word: str) -> Statements[set[int]]:
    """Return the jobs with a field of `search` of this value, as in ``customer:7``, where the tag is ``7``."""
    field, _, text = word.partition(":")
    tag = tag_of(text)
    found: set[int] = set()
    after = 0
    while field and tag is not None:
        window = {"tag": tag, "after_id": after, "before_id": NEWEST, "most": BATCH}
        ids = [row[0] for row in (yield Query("jobs_tagged", window))]
        payloads: Sequence[tuple[int, bytes]] = (yield Query("payloads_of", {"ids": ids})) if ids else ()
        if any(payload.startswith(ENCODED) for _, payload in payloads):
            raise PayloadEncoded("arguments of jobs with this value are encoded: erase it in a process with the codec")
        found |= {number for number, payload in payloads if has_value(payload, field, text)}
        if len(ids) < BATCH:
            break
        after = ids[-1]
    return found


@wakes
def erase_items(items: Sequence[tuple[str, str]], *, now: datetime | None = None) -> Statements[Erased]:
    """Stop tracking items, and cancel their attempts; these become jobs to be erased."""
    at = yield from instant(now)
    gone = 0
    for name, key in items:
        gone += yield from refreshes.remove(name, key, at)
    return _result({"items": gone})


@wakes
def erase_jobs(ids: Sequence[int], *, dry_run: bool = False, now: datetime | None = None) -> Statements[Erased]:
    """Delete jobs with all their rows; those that have not started are cancelled first."""
    at = yield from instant(now)
    jobs: Sequence[JobRecord] = yield from selected(Filter(ids=tuple(ids), limit=len(ids)))
    there = {job.id for job in jobs}
    if not dry_run:
        jobs = yield Query("job_locks", {"ids": list(ids)}, into=JobRecord)
    awaited = dict((yield Query("erase_awaited", {"ids": list(ids)})))
    inside = {job.id for job in jobs}
    taken = [f"job {number} is being changed by another transaction" for number in sorted(there - inside)]
    chosen, reasons = yield from deleting.choose([job for job in jobs if awaited.get(job.id) is None])
    kept = taken + [f"job {number} {why}" for number, why in reasons]
    kept += [
        f"job {number} belongs to a run that run {parent} has called, which has not ended"
        for number, parent in awaited.items()
        if number in inside
    ]
    chosen, followed = yield from _unfollowed(chosen, only=there if dry_run else None)
    kept += followed
    counts = yield from _counts([job.id for job in chosen])
    if dry_run:
        return _result({"jobs": len(chosen), **counts}, kept)
    for job in chosen:
        if job.state not in FINAL:
            yield from end_job(job, at, "erased by an operator")
    gone = yield from deleting.prune(chosen, at)
    kept += [
        f"job {job.id} stays: a job that it is the origin of must be erased first"
        for job in chosen
        if job.id not in gone
    ]
    return _result({"jobs": len(gone), **counts}, kept)


# A run that another one calls or forks is found through that one: a repeated call would not find what is left.
def _unfollowed(
    chosen: Sequence[JobRecord], *, only: Collection[int] | None
) -> Statements[tuple[list[JobRecord], list[str]]]:
    """Return the jobs that no job follows which stays, and the others with the reason; ``only`` are those that may."""
    going = {job.id for job in chosen}
    rows = (yield Query("erase_followers", {"ids": sorted(going)})) if going else []
    kept = []
    # A job that follows has a higher id, and is decided upon first.
    for follower, origin in sorted(rows, key=lambda row: (-row[1], row[0])):
        if origin in going and follower not in going and (only is None or follower in only):
            going.discard(origin)
            kept.append(f"job {origin} stays: job {follower}, which follows it, must be erased first")
    return [job for job in chosen if job.id in going], kept


@wakes
def erase_rest(
    word: str, found: Found, before: Erased, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[Erased]:
    """Delete instances, events and values, replace the value in texts, and record the erasure; return it as a whole."""
    at = yield from instant(now)
    counts: Counter[str] = Counter()
    kept: list[str] = []
    for machine, key in found.instances:
        try:
            yield from machines.remove(machine, key, at)
        except InstanceNotFound:
            continue
        except MachineBusy:
            kept.append(f"an instance of machine {machine} stays: its transition has not ended")
        else:
            counts["instances"] += 1
    for topic, ids in found.events.items():
        gone = yield Query("erase_events", {"topic": topic, "ids": list(ids)})
        counts["events"] += len(gone)
        if len(gone) < len(ids):
            kept.append(f"{len(ids) - len(gone)} events of topic {topic} stay: a subscription has not got them")
    gone = yield Query("erase_values", {"word": word})
    counts["values"] += len(gone)
    if len(gone) < found.values:
        kept.append("an emitted value stays: a run that waits for it has not got it")
    if requests := (yield from _requests(word)):
        yield Query("erase_requests", many=[{"actor": actor_of, "key": key} for actor_of, key in requests])
    counts["requests"] += len(requests)
    yield from _forget_partitions(word)
    yield from _replace(word, counts)
    done = before.plus(_result(counts, kept))
    yield from record(at, actor, "erase", counts=done.counts, kept=len(done.kept))
    return done


def _forget_partitions(word: str) -> Statements[None]:
    """Take the partitions of a value out of what queues keep of their claims."""
    partitions = _partitions(word)
    known: Sequence[QueueSettings] = yield Query("queues_select", {"names": None}, into=QueueSettings)
    # In the order of a claim, and before the starts, which a claim writes under these locks.
    for queue in known:
        if queue.turn in partitions:
            yield Query("queue_turn", {"name": queue.name, "turn": ""})
    yield Query("erase_starts", {"partitions": partitions})


def rest_of(found: Found) -> Erased:
    """Return what a dry run reports beside jobs. That an event is not delivered yet shows only when it is deleted."""
    counts = {
        "instances": len(found.instances),
        "items": len(found.items),
        "events": sum(map(len, found.events.values())),
        "values": found.values,
        "requests": len(found.requests),
        **{_PLURALS[kind]: number for kind, number in found.texts.items()},
    }
    return _result(counts)


def _partitions(word: str) -> list[str]:
    return [word, key_line(word)]


def _counts(ids: Sequence[int]) -> Statements[dict[str, int]]:
    return dict((yield Query("erase_counts", {"ids": list(ids)}))) if ids else {}


def _result(counts: Mapping[str, int], kept: Sequence[str] = ()) -> Erased:
    return Erased({kind: number for kind, number in counts.items() if number}, tuple(kept))


# ----------------------------------------------------------------------------------------------------- texts


def _text(word: str) -> str:
    """Return a text as it stands within one of JSON."""
    return msgspec.json.encode(word).decode()[1:-1]


def _mentions(word: str) -> Statements[list[tuple[str, str, str | None, str | None]]]:
    """Return the texts that mention a value as a whole word."""
    pattern = _pattern(word)
    rows = yield Query("erase_texts", {"word": word, "text": _text(word)})
    return [
        (kind, number, first, second)
        for kind, number, first, second in rows
        if any(pattern.search(each) for each in _strings(first, second))
    ]


def _requests(word: str) -> Statements[list[tuple[str, str]]]:
    """Return the actors and keys of answered requests that mention a value as a whole word."""
    pattern = _pattern(word)
    rows = yield Query("erase_answers", {"word": word, "text": _text(word)})
    return [
        (actor, key)
        for actor, key, answer in rows
        if any(pattern.search(each) for each in _strings(key, bytes(answer).decode()))
    ]


def _replace(word: str, counts: Counter[str]) -> Statements[None]:
    """Replace a value in texts that mention it, and count these."""
    pattern = _pattern(word)
    found: dict[str, list[dict[str, object]]] = {}
    for kind, number, first, second in (yield from _mentions(word)):
        if kind == "error group":
            row: dict[str, object] = {"id": number, "first": pattern.sub(ERASED, first or "")}
        elif kind == "audit":
            about = None if second is None or pattern.search(second) else second
            row = {"id": int(number), "first": _json(pattern, first), "second": about}
        else:
            row = {"id": int(number), "first": _json(pattern, first), "second": _json(pattern, second)}
        found.setdefault(kind, []).append(row)
    if "audit" in found:
        yield Query("erase_audit", many=found["audit"])
    if "operation" in found:
        yield Query("erase_operations", many=found["operation"])
    if "error group" in found:
        yield Query("erase_errors", many=found["error group"])
    for kind, rows in found.items():
        counts[_PLURALS[kind]] += len(rows)


_PLURALS: Final = {"audit": "lines of the audit log", "operation": "bulk operations", "error group": "error groups"}


def _pattern(word: str) -> re.Pattern[str]:
    # `7` must not be found in `17`.
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


def _strings(*texts: str | None) -> list[str]:
    found: list[str] = []
    for text in texts:
        if text is not None:
            found.append(text)
            if text.startswith("{"):
                _walk(msgspec.json.decode(text), found)
    return found


def _walk(value: object, found: list[str]) -> None:
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, dict):
        for key, each in value.items():
            found.append(key)
            _walk(each, found)
    elif isinstance(value, list):
        for each in value:
            _walk(each, found)


def _json(pattern: re.Pattern[str], text: str | None) -> str:
    return msgspec.json.encode(_without(pattern, msgspec.json.decode(text or "{}"))).decode()


def _without(pattern: re.Pattern[str], value: object) -> object:
    if isinstance(value, str):
        return pattern.sub(ERASED, value)
    if isinstance(value, dict):
        return {pattern.sub(ERASED, key): _without(pattern, each) for key, each in value.items()}
    return [_without(pattern, each) for each in value] if isinstance(value, list) else value
