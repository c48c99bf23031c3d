"""The effects that a handler adds to its attempt."""

from __future__ import annotations

import pytest

from redrive.app.attempts.effects import Effects
from redrive.engine.origin import Effect
from redrive.errors import LeaseLost


def test_effects_keep_their_order():
    """Effects are closed in the order in which they were added."""
    effects, one, two = Effects(), Effect(), Effect()

    effects.add(one)
    effects.add(two)

    assert (one, two) == effects.added == effects.close()


def test_effects_of_a_rolled_back_transaction_are_dropped():
    """Those that were added before it stay."""
    effects, one = Effects(), Effect()
    effects.drop(0)
    effects.add(one)

    effects.add(Effect(), Effect())
    effects.drop(1)

    assert (one,) == effects.added


def test_closed_effects_take_no_other():
    """Effects that come after the end of the attempt are refused, because they could not commit any more."""
    effects = Effects()
    effects.close()

    with pytest.raises(LeaseLost, match="the attempt has ended"):
        effects.add(Effect())
