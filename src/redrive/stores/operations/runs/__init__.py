"""Operations on runs of workflows. PURE.

* `start`: start and fork runs;
* `steps`: what a claim reads of a run, and what a settle writes of it;
* `waits`: signals, emitted values, and waking the runs that wait for them;
* `gate`: single steps for callers that are no workflows.

Operators' queries and actions stand in `redrive.stores.operations.managing_runs`.

Lock order: the job of a run first, then its row, its steps and its signals. Senders of signals lock nothing.
"""
