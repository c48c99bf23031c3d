-- Release the locks of rows that this transaction has taken since the mark.
-- Called by update, trigger and untrack when an item has got another attempt. SQLite has one writer at a time.
ROLLBACK TO SAVEPOINT locks /* of redrive_refreshes */
