"""The test kit: for redrive's own tests and for those of its users.

Answers: how does a day of retries pass in milliseconds? May import: `redrive.runtime` and below. Must never: be
imported by another layer, or imitate the engine instead of running it.

* `VirtualClock` jumps instead of sleeping;
* `drain` runs every job of an app that is due, jumping the clock from one due time to the next, until nothing is left
  to do: a day of retries takes milliseconds.

* `retries` makes the retried calls of this process fit for tests: no waiting, and as many attempts as you say;
* `using` gives retried calls another clock, or loaded dice.

The engine is the real one, on a real database; give the app ``memory://`` and a clock::

    clock = VirtualClock()
    app = App("memory://", clock=clock)
    ...
    drain(app)
"""

from __future__ import annotations

from redrive.retrying.context import trial as retries
from redrive.retrying.context import using
from redrive.testing.clock import VirtualClock
from redrive.testing.drain import Drained, adrain, drain

__all__ = ["Drained", "VirtualClock", "adrain", "drain", "retries", "using"]
