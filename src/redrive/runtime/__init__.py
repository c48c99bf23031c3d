"""The worker process and its background duties, one per module.

May import: `redrive.app` and below. Must never: decide. Every decision is made in `redrive.policy` or `redrive.engine`;
this layer calls handlers, waits, and carries values to and from the store.

In the order in which a job meets them:

* `notifier` waits for changes of the database and wakes the claimer;
* `claimer` claims due jobs, as many as there are free slots;
* `attempts` holds the slots and the leases of what runs;
* `executor` runs one handler and returns its outcome; `tracing` surrounds it with the context managers of sinks;
* `settler` writes outcomes in batches;
* `heartbeat` extends the lease of the worker and stops attempts that have lost theirs;
* `rescuer` takes jobs from workers without a heartbeat, `dead_workers` from workers with a process that is gone;
* `scheduler`, `timeouts`, `pruner`, `checkpointer`, `timekeeper` and `reporter` do the rest;
* `worker` starts the duties and stops them in order; `supervision` restarts a duty that fails.
"""
