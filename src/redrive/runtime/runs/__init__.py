"""The execution of workflows: bodies, their branches, steps and waits.

* `passes`: one pass of a body, from its beginning to its end or to the point where every branch waits;
* `body`, `conductor`: the calls of a body, and what each of them gets, with a drawing of the way of a call;
* `writes`, `rows`: what a pass records; `parking`: the waits of its branches, and the end when all of them wait;
* `branches`: the concurrent lines of a body, and what each of them waits for;
* `steps`: the tries of one step; `waits`: sleeps, signals, events and child runs; `groups`: gather, map and first;
* `undo`: the compensation of a run that has failed or was cancelled;
* `recorder`: the writes of a run to its store; `receipts`: what has arrived for it;
* `attempt`: its parts put together, and one attempt of a run, from its claim to its outcome.
"""
