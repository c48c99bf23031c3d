"""The test kit for applications, in which a day of retries takes milliseconds.

* `using_app` gives an app an empty database in memory and a virtual clock, for the time of a test;
* `VirtualClock` advances instead of sleeping;
* `drain` runs the jobs of an app until none is left, and advances the clock from one due time to the next;
* `replay` compares the code of a workflow with the history of a run, without a database;
* `retries` makes retried calls of this process not wait, and limits their attempts;
* `using` gives retried calls another clock, or other random numbers.

May import: `redrive.runtime` and below. Must never: be imported by another layer, or imitate the engine. The engine and
the database are the real ones::

    with using_app(app):
        job = charge.enqueue(100)
        drain(app)
        assert job.state == "succeeded"
"""

from redrive.retrying.context import trial as retries
from redrive.retrying.context import using
from redrive.testing.app import VirtualClock, using_app
from redrive.testing.drain import Drained, adrain, drain
from redrive.testing.replay import areplay, replay

__all__ = ["Drained", "VirtualClock", "adrain", "areplay", "drain", "replay", "retries", "using", "using_app"]
