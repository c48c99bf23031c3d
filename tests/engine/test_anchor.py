"""The time of a database that goes by the clock of its machine: a step of that clock is held back, then followed."""

from __future__ import annotations

import msgspec
import pytest

from redrive.engine.anchor import HOLD, TOLERANCE, Anchor, advance, corrected, difference, read

SECOND = 1_000_000
HOUR = 3600 * SECOND
T0 = 1_700_000_000 * SECOND
ANCHOR = Anchor("boot", 100 * SECOND, T0)


def boot(seconds: float) -> tuple[str, int]:
    """Return the boot, this many seconds after the anchor."""
    return "boot", 100 * SECOND + int(seconds * SECOND)


@pytest.mark.parametrize("off", [0, 400_000, -400_000, TOLERANCE, -TOLERANCE])
def test_small_differences_are_followed_at_once(off: int):
    """Up to a second the clock of the machine is right."""
    assert 0 == difference(ANCHOR, boot(60), T0 + 60 * SECOND + off)
    assert T0 + 60 * SECOND + off == corrected(ANCHOR, boot(60), T0 + 60 * SECOND + off)


@pytest.mark.parametrize("off", [TOLERANCE + 1, -TOLERANCE - 1, 20 * SECOND, HOUR, -HOUR])
def test_a_step_is_held_back(off: int):
    """After a step of the clock the time of the database continues unchanged."""
    assert off == difference(ANCHOR, boot(60), T0 + 60 * SECOND + off)
    assert T0 + 60 * SECOND == corrected(ANCHOR, boot(60), T0 + 60 * SECOND + off)


@pytest.mark.parametrize(
    ("anchor", "now"),
    [(None, boot(60)), (ANCHOR, None), (ANCHOR, ("another boot", 5))],
    ids=["no anchor", "unknown boot", "another boot"],
)
def test_without_an_anchor_of_this_boot_the_clock_is_used(anchor: Anchor | None, now: tuple[str, int] | None):
    """Without a known time since the boot, the database uses the clock of the machine."""
    assert T0 + HOUR == corrected(anchor, now, T0 + HOUR)


@pytest.mark.parametrize("before", [None, ANCHOR], ids=["first", "after a boot"])
def test_the_first_read_sets_the_anchor(before: Anchor | None):
    """Databases without an anchor of this boot get one, and their time is that of the clock."""
    assert (Anchor("new", 7, T0), 0) == advance(before, ("new", 7), T0)


def test_an_anchor_that_fits_stays():
    """No anchor is written while the clock agrees with it."""
    assert (ANCHOR, 0) == advance(ANCHOR, boot(3600), T0 + HOUR + 90_000)


def test_many_small_steps_are_not_added_up():
    """Small differences move the anchor, so that three of them do not add up to a large one."""
    anchor = ANCHOR
    for number in range(1, 10):
        wall = T0 + number * 60 * SECOND + number * 400_000
        anchor, moved = advance(anchor, boot(number * 60), wall)

        assert (0, 0, wall) == (moved, difference(anchor, boot(number * 60), wall), anchor.at)


@pytest.mark.parametrize("off", [20 * SECOND, HOUR, -HOUR])
def test_a_step_that_lasts_is_followed(off: int):
    """It is noted when it is seen, kept for the hold, and then the anchor is set anew."""
    seen, first = advance(ANCHOR, boot(10), T0 + 10 * SECOND + off)
    later = boot(10 + HOLD / SECOND - 1)
    waiting, second = advance(seen, later, T0 + later[1] - ANCHOR.ticks + off)
    end = boot(10 + HOLD / SECOND)
    wall = T0 + end[1] - ANCHOR.ticks + off
    followed, third = advance(waiting, end, wall)

    assert (0, 0, off) == (first, second, third)
    assert seen == waiting == Anchor("boot", ANCHOR.ticks, T0, since=boot(10)[1], step=off)
    assert Anchor("boot", end[1], wall) == followed
    assert wall == corrected(followed, end, wall)


def test_a_step_that_is_undone_is_forgotten():
    """After the clock was set right, the next step has to last by itself."""
    seen, _ = advance(ANCHOR, boot(10), T0 + 10 * SECOND + HOUR)
    undone, moved = advance(seen, boot(20), T0 + 20 * SECOND)

    assert (Anchor("boot", boot(20)[1], T0 + 20 * SECOND), 0) == (undone, moved)


def test_a_second_step_restarts_the_waiting_time():
    """If the clock is set twice, it is followed once the second step has lasted."""
    seen, _ = advance(ANCHOR, boot(10), T0 + 10 * SECOND + HOUR)
    again, moved = advance(seen, boot(10 + HOLD / SECOND), T0 + 10 * SECOND + HOLD - HOUR)

    assert (boot(10 + HOLD / SECOND)[1], -HOUR, 0) == (again.since, again.step, moved)


@pytest.mark.parametrize(("text", "anchor"), [(None, None), ("", None), ("[1]", None), ('{"boot": 1}', None)])
def test_an_unreadable_text_is_no_anchor(text: str | None, anchor: Anchor | None):
    """Text of another program, or of a newer redrive, counts as no anchor."""
    assert anchor is read(text)


def test_an_anchor_is_stored_as_text():
    """Decoding an encoded anchor returns an equal one."""
    assert ANCHOR == read(msgspec.json.encode(ANCHOR).decode())
