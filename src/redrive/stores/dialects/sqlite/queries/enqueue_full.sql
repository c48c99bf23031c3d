-- Insert one job without keys, with all of its options, and return its id and the instant; no row if it is refused.
-- Called by enqueue, for a job with a due time, an expiry, tags or a trace.
-- first: enqueue_policy.sql
-- first: enqueue_job_full.sql
-- first: enqueue_payload.sql
-- first: enqueue_tags.sql
-- first: enqueue_trace.sql
UPDATE redrive_sequences SET value = value + 1
WHERE name = 'job' AND EXISTS (SELECT 1 FROM redrive_jobs WHERE id = value + 1)
RETURNING value AS id, :now AS now
