"""Operations on refreshes, which keep tracked items up to date. PURE.

* `declare`: the declaration of a refresh, and items with times that must be computed again;
* `start`: start the items that are due;
* `finish`: apply the ends of attempts, and end attempts after their deadlines;
* `manage`: track, change, trigger and pause items;
* `read`: read items;
* `write`: write the state of items and create the jobs of their attempts, as a part of the operations above.

Lock order: the job first, then the tracked item. Code that starts from the item reads its job id without a lock, locks
the job, then locks the item. A transaction that has locked items never waits for a job. A transaction that has locked
one item does not wait for another one; several items are locked by one statement, in the order of their keys.
"""
