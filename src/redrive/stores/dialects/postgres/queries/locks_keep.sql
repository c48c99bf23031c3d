-- Forget the mark, because many of them in one transaction make the whole server slow.
-- Called by update, trigger and untrack. SQLite has one writer at a time and needs no lock.
RELEASE SAVEPOINT locks /* of redrive_refreshes */
