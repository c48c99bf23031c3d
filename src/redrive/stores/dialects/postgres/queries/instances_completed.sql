-- Lock completed instances that entered their state long enough ago, without locked ones, and return their keys.
-- Called by prune_completed.
SELECT key FROM redrive_instances
WHERE machine = :machine::text AND status = 'completed' AND entered_at <= :before::timestamptz AND job_id IS NULL
ORDER BY entered_at
LIMIT :count::bigint
FOR UPDATE SKIP LOCKED
