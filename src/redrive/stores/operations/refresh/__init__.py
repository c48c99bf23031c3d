"""Operations on refreshes, which keep tracked items up to date. PURE.

`start` starts due items, and computes times again; `finish` applies the ends of attempts; `manage` tracks, changes,
triggers and pauses items; `items` reads and writes their rows as a part of these operations.

Lock order: the job first, then the tracked item. Code that starts from the item reads its job id without a lock, locks
the job, then locks the item; if the item has another job by then, it releases both locks and begins again. A
transaction that has locked items never waits for a job. A transaction that has locked one item does not wait for
another one; several items are locked by one statement, in the order of their keys.
"""
