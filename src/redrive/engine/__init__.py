"""The records and the state machines of jobs, crons and refreshes. PURE.

May import: `redrive.policy`, `redrive.schedule` and below. Must never: read a clock, draw random numbers, do I/O.
``now`` and the random sample are arguments, results are frozen values.

* `records`: jobs, attempts, workers and the audit log as read from a store; filters for jobs;
* `lifecycle`: the table of job states and events;
* `outcome`, `settle`: from the end of an attempt to the changes that it writes;
* `lease`: heartbeat and lease times; `frozen`: the policy stored with a job;
* `queue`: pauses, limits, rates and partitions; `keys`: unique keys;
* `origin`, `reports`: what a job was created for, and the report of its end to that; `effects`: what commits with a
  successful end;
* `recurring`: crons and refreshes as declared and stored; `occurrence`: the occurrences of a cron; `items`: tracked
  items of a refresh;
* `runs`: runs of workflows, their recorded steps and signals; `replay`: the comparison of a body with recorded steps;
* `machine`, `diagram`: state machines, and how they are drawn;
* `explain`: why a job is not running, in one line;
* `secrets`: secret values, found by their keys, and their removal from texts;
* `anchor`: the time of an embedded database while the clock of its machine is set.
"""
