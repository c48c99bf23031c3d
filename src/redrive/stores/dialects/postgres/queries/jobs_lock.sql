-- Return these jobs, and lock them until the transaction ends, in the order of their ids.
-- Called by cancel for the family of a run. SQLite needs no lock.
SELECT
-- include job_columns.sql
FROM redrive_jobs AS job
WHERE id = ANY (:ids::bigint[])
ORDER BY id
FOR UPDATE
