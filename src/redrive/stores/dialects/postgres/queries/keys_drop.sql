-- Release the unique keys of these jobs; idempotency keys stay until the job is pruned.
-- Called when a job starts, ends or is superseded.
DELETE FROM redrive_keys
-- As in settle_succeeded: the planner must not use the index of keys by their kind.
WHERE kind <> 'idempotency' AND job_id = ANY (:job_ids::bigint[])
