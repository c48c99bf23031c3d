-- Return the jobs that match, oldest first, in the order of the table, without sorting.
-- Called by select, and by operations on many jobs to find theirs.
SELECT
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at,
    (SELECT document FROM redrive_policies WHERE digest = job.policy LIMIT 1) AS policy
FROM redrive_jobs AS job
WHERE (:state::text IS NULL OR state = :state)
    AND (:task::text IS NULL OR task = :task)
    AND (:queue::text IS NULL OR queue = :queue)
    AND (:hold::text IS NULL OR hold = :hold)
    AND (:reason::text IS NULL OR reason = :reason)
    AND (:error::text IS NULL OR strpos(error, :error) > 0)
    AND (:caught::boolean IS NULL OR (caught_at IS NOT NULL) = :caught)
    AND (:tag::text IS NULL OR EXISTS (SELECT FROM redrive_tags AS mark WHERE mark.tag = :tag AND mark.job_id = job.id))
    AND (:refreshes::boolean OR state <> 'dead' OR origin IS NULL OR origin NOT LIKE 'refresh:%')
    AND (:finished_before::timestamptz IS NULL OR finished_at < :finished_before)
    AND id > :after_id::bigint
ORDER BY id
LIMIT :count::bigint
