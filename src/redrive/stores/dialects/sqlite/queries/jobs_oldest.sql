-- Return the jobs that match, oldest first, in the order of the table, without sorting.
-- Called by select, and by operations on many jobs to find theirs.
SELECT
    id, task, queue, priority, state, hold, note, enqueued_at, scheduled_at, started_at, claimed_at, finished_at,
    caught_at, skipped_at, attempt, failures, crashes, snoozes, redrives, lease_id, worker_id, parent_id, partition,
    key, key_until, origin, reason, error, expires_at,
    (SELECT document FROM redrive_policies WHERE digest = redrive_jobs.policy) AS policy
FROM redrive_jobs
WHERE (:state IS NULL OR state = :state)
    AND (:task IS NULL OR task = :task)
    AND (:queue IS NULL OR queue = :queue)
    AND (:hold IS NULL OR hold = :hold)
    AND (:reason IS NULL OR reason = :reason)
    AND (:error IS NULL OR instr(error, :error) > 0)
    AND (:caught IS NULL OR (caught_at IS NOT NULL) = :caught)
    AND (
        :tag IS NULL
        OR EXISTS (SELECT 1 FROM redrive_tags AS mark WHERE mark.tag = :tag AND mark.job_id = redrive_jobs.id)
    )
    AND (:refreshes OR state <> 'dead' OR origin IS NULL OR origin NOT LIKE 'refresh:%')
    AND (:finished_before IS NULL OR finished_at < :finished_before)
    AND id > :after_id
ORDER BY id
LIMIT :count
