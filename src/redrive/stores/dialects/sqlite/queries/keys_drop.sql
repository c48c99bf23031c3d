-- Release the unique keys of these jobs; idempotency keys stay until the job is pruned.
-- Called when a job starts, ends or is superseded.
DELETE FROM redrive_keys WHERE kind = 'unique' AND job_id IN (SELECT value FROM json_each(:job_ids))
