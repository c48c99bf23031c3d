"""The background duties of a worker process. One duty, one noun, one short file.

Answers: who runs the jobs? May import: `redrive.app` and below. Must never: decide. Every decision is made in
`redrive.policy` or `redrive.engine`; this layer calls handlers, waits, and carries values to and from the store.

In the order in which a job meets them:

* `notifier` sees that the database has changed, and wakes the claimer;
* `claimer` takes due jobs, as many as there are free slots;
* `executor` runs a handler and says how it ended; while somebody listens, `watching` is around it;
* `settler` gathers endings and writes them in batches;
* `keeper` beats, and stops what the worker has lost, or may lose because no beat is answered;
* `rescuer` sweeps up after workers that died;
* `coroner` sees that a worker has died before its lease runs out, by its `process` or its session;
* `pruner` deletes jobs that ended long ago;
* `worker` starts these, and stops them in order.
"""
