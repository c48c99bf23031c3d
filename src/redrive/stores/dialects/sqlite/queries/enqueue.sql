-- Insert one job without keys that is due at once, and return its id and the instant; no row if it is refused.
-- Called by enqueue, for most jobs.
-- first: enqueue_policy.sql
-- first: enqueue_job.sql
-- first: enqueue_payload.sql
UPDATE redrive_sequences SET value = value + 1
WHERE name = 'job' AND EXISTS (SELECT 1 FROM redrive_jobs WHERE id = value + 1)
RETURNING value AS id, :now AS now
