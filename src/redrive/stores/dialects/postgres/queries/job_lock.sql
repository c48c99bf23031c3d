-- Return one job, and lock it until the transaction ends.
-- Called by cancel, retry and skip, which decide by its state. SQLite has one writer at a time and needs no lock.
SELECT
-- include job_columns.sql
FROM redrive_jobs AS job
WHERE id = :id::bigint
FOR UPDATE
