-- Let attempts wait for an external completion, each if its lease is still current, and return these leases.
-- Called by settle; the lease stays, because it names the completion. If repeated, the first end of the wait stays.
UPDATE redrive_jobs AS job SET
    state = 'waiting',
    note = given.note,
    scheduled_at = CASE WHEN job.state = 'waiting' THEN job.scheduled_at ELSE given.scheduled_at END,
    crashes = 0,
    hold = NULL,
    slot = NULL
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :scheduled_at::timestamptz[], :note::text[]
) AS given (job_id, lease_id, scheduled_at, note)
WHERE job.id = ANY (:job_id) AND job.id = given.job_id AND job.lease_id = given.lease_id
RETURNING job.lease_id
