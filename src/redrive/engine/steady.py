"""The time of a database that goes by the clock of its machine. PURE.

An embedded database has no clock of its own. The clock of the machine can be set, by a person or by NTP, while workers
run; then leases would end early, and jobs and crons would start early or not at all for a while. So the database keeps
an *anchor*: what its clock showed at a moment that is known by the time since the boot of the machine. From then on its
time is the anchor plus what has passed since, which no change of the clock changes.

A change of the clock is not followed at first. If it lasts for `HOLD`, the clock is probably right now, as after the
first synchronization of a machine that has booted with a wrong time: the anchor is set anew, and what waits for a span
moves with it. Differences below `TOLERANCE` are followed at once.

Instants are whole microseconds since 1970 in UTC here, because this is part of each transaction.
"""

from __future__ import annotations

import functools

import msgspec

__all__ = ["HOLD", "TOLERANCE", "Anchor", "keep", "present", "read", "step"]

TOLERANCE = 1_000_000
"""Microseconds by which the clock may differ from the anchored time without being thought to have been set."""

HOLD = 300_000_000
"""Microseconds for which a change of the clock has to last before it is followed."""

_NEARLY = TOLERANCE // 10


class Anchor(msgspec.Struct, frozen=True):
    """What the clock showed at a moment.

    Attributes:
        boot: the boot of the machine; the anchor means nothing after another one.
        ticks: the moment, in microseconds since that boot.
        at: the instant.
        since: where the clock shows another time than the anchor, the moment at which this was seen first.
        step: by how much it differed then.
    """

    boot: str
    ticks: int
    at: int
    since: int | None = None
    step: int = 0


@functools.lru_cache(maxsize=16)
def read(text: str | None) -> Anchor | None:
    """Read an anchor from JSON.

    Args:
        text: as stored; None where nothing is stored.

    Returns:
        The anchor; None where there is none that can be read.
    """
    try:
        return None if text is None else msgspec.json.decode(text, type=Anchor)
    except msgspec.DecodeError:
        return None


def step(anchor: Anchor | None, boot: tuple[str, int] | None, wall: int) -> int:
    """Say by how much the clock of the machine differs from the time of the database.

    Args:
        anchor: of the database, if it has one.
        boot: the present boot of the machine, and the microseconds since then; None where that is not known.
        wall: what the clock of the machine shows.

    Returns:
        Microseconds; 0 where that is within the tolerance, or nothing is known.
    """
    if anchor is None or boot is None or anchor.boot != boot[0]:
        return 0
    difference = wall - anchor.at - (boot[1] - anchor.ticks)
    return difference if abs(difference) > TOLERANCE else 0


def present(anchor: Anchor | None, boot: tuple[str, int] | None, wall: int) -> int:
    """Tell the time of the database.

    Args:
        anchor: of the database, if it has one.
        boot: the present boot of the machine, and the microseconds since then; None where that is not known.
        wall: what the clock of the machine shows.

    Returns:
        The present instant.
    """
    return wall - step(anchor, boot, wall)


def keep(anchor: Anchor | None, boot: tuple[str, int], wall: int) -> tuple[Anchor, int]:
    """Compare the clock of the machine with the anchor, as somebody has to do every now and then.

    Args:
        anchor: of the database, if it has one.
        boot: the present boot of the machine, and the microseconds since then.
        wall: what the clock of the machine shows.

    Returns:
        The anchor from now on, and by how much the time of the database changes with it.
    """
    name, ticks = boot
    fresh = Anchor(name, ticks, wall)
    if anchor is None or anchor.boot != name:
        return fresh, 0
    difference = step(anchor, boot, wall)
    if not difference:
        near = abs(wall - anchor.at - (ticks - anchor.ticks)) <= _NEARLY
        return (anchor if near and anchor.since is None else fresh), 0
    if anchor.since is None or abs(difference - anchor.step) > TOLERANCE:
        return Anchor(name, anchor.ticks, anchor.at, since=ticks, step=difference), 0
    return (fresh, difference) if ticks - anchor.since >= HOLD else (anchor, 0)
