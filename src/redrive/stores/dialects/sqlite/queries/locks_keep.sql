-- Do nothing.
-- Called by update, trigger and untrack. SQLite has one writer at a time and needs no lock.
SELECT 1 WHERE 0
