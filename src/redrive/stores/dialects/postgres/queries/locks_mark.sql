-- Mark the locks that this transaction holds, so that later ones can be given back.
-- Called by update, trigger and untrack. SQLite has one writer at a time and needs no lock.
SAVEPOINT locks /* of redrive_refreshes: a statement of a process that has stopped is known by its table (stuck_end) */
