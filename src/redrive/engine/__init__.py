"""The life of durable things, decided without touching any of them. PURE.

Answers: what becomes of a job after this outcome? May imports: `redrive.policy` and below. Must never: read a clock,
roll dice, do I/O. ``now`` and the random sample are arguments, the results are frozen values.

The flow of one job, each arrow a type, each box a file::

    claim.sql -rows-> dialects/*/values -Claim-> runtime/executor -Outcome-> stores/operations/settle
                                                                                   |        ^
                                                                       Claim, Outcome, now  | Transition
                                                                                   v        |
                                                                               engine/settle (PURE)

* `records`: jobs, attempts and workers as they are read from a store;
* `lifecycle`: THE TABLE of states and events, the only place that knows which moves exist;
* `outcome`: what an attempt can end with;
* `settle`: (claim, outcome, now, sample) -> transition;
* `lease`: how long a silent worker is believed;
* `explain`: why a job is not running, in one line;
* `keys`: who holds a unique key;
* `select`: which jobs a person means;
* `upkeep`: what people did, and what should not be so.
"""
