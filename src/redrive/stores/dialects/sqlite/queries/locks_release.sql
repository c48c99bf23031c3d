-- Do nothing.
-- Called by update, trigger and untrack. SQLite has one writer at a time, so no item gets another attempt meanwhile.
SELECT 1 WHERE 0
