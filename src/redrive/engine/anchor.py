"""The anchored clock of an embedded database. PURE.

An embedded database has no clock of its own, and the clock of the machine can be set while workers run, by a person or
by NTP. Leases would then end early, and jobs and crons would start early or not at all. The database therefore stores
an *anchor*: an instant, and the time since the boot of the machine at that instant. The time of the database is the
anchor plus the time that has passed since, which no change of the clock affects.
"""

from __future__ import annotations

import functools

import msgspec

# Differences up to `TOLERANCE` are followed at once. A larger change of the clock is followed when it has lasted for
# `HOLD`: the clock is then probably correct, as after the first NTP synchronization of a machine that booted with a
# wrong time. The anchor is set again, and spans in progress move with it.
#
# All instants here are microseconds since 1970 in UTC. A *boot* is the id of the present boot of the machine and the
# microseconds since then. *wall* is the clock of the machine.
#
# Difference between the clock and the anchored time, in microseconds, up to which the clock counts as not set.
TOLERANCE = 1_000_000

# Microseconds for which a change of the clock has to last before it is followed.
HOLD = 300_000_000

_NEARLY = TOLERANCE // 10


class Anchor(msgspec.Struct, frozen=True, gc=False):
    """An instant and the time since boot at that instant."""

    boot: str  # id of the boot; after another boot the anchor is void
    ticks: int
    at: int
    since: int | None = None  # the ticks at which the clock was first seen to differ; None while it agrees
    step: int = 0  # the difference at that time


@functools.lru_cache(maxsize=16)
def read(text: str | None) -> Anchor | None:
    """Decode a stored anchor; return None if there is none or it cannot be decoded."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Anchor)
    except msgspec.DecodeError:
        return None


def difference(anchor: Anchor | None, boot: tuple[str, int] | None, wall: int) -> int:
    """Return by how many microseconds the clock is ahead of the database; 0 within the tolerance, or if unknown."""
    if anchor is None or boot is None or anchor.boot != boot[0]:
        return 0
    ahead = wall - anchor.at - (boot[1] - anchor.ticks)
    return ahead if abs(ahead) > TOLERANCE else 0


def corrected(anchor: Anchor | None, boot: tuple[str, int] | None, wall: int) -> int:
    """Return the present time of the database."""
    return wall - difference(anchor, boot, wall)


def advance(anchor: Anchor | None, boot: tuple[str, int], wall: int) -> tuple[Anchor, int]:
    """Compare the clock with the anchor; return the new anchor, and by how much the time of the database changes."""
    name, ticks = boot
    fresh = Anchor(name, ticks, wall)
    if anchor is None or anchor.boot != name:
        return fresh, 0
    ahead = difference(anchor, boot, wall)
    if not ahead:
        near = abs(wall - anchor.at - (ticks - anchor.ticks)) <= _NEARLY
        # Small differences move the anchor; otherwise several of them would add up to one above the tolerance.
        return (anchor if near and anchor.since is None else fresh), 0
    if anchor.since is None or abs(ahead - anchor.step) > TOLERANCE:
        return Anchor(name, anchor.ticks, anchor.at, since=ticks, step=ahead), 0
    return (fresh, ahead) if ticks - anchor.since >= HOLD else (anchor, 0)
