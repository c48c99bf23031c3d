"""The execution of workflows: bodies, their branches, steps and waits.

* `conductor`: one pass of a body, from its beginning to its end or to the point where every branch waits;
* `branches`: the concurrent lines of a body, and what each of them waits for;
* `steps`: the tries of one step; `waits`: sleeps, signals, events and child runs; `groups`: gather, map and first;
* `undo`: the compensation of a run that has failed or was cancelled;
* `recorder`: the writes of a run to its store; `receipts`: what has arrived for it;
* `attempt`: its parts put together, and one attempt of a run, from its claim to its outcome.
"""
