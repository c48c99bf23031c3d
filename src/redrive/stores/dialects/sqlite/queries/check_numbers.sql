-- Return the jobs with a history that lacks an attempt that was counted: it was not ended under its lease.
-- Called by check. An attempt that was given back or snoozed is not counted, and leaves its number to the next one.
SELECT id, 'job ' || id || ' counts ' || ended || ' attempts that have ended, but its history has ' || told_attempts AS text,
    'attempts' AS rule
FROM (
    SELECT job.id, job.attempt - CASE WHEN job.lease_id IS NULL THEN 0 ELSE 1 END AS ended,
        CASE WHEN job.success_lease_id IS NULL THEN 0 ELSE 1 END + (
            SELECT count(DISTINCT line.number) FROM redrive_attempts AS line
            WHERE line.job_id = job.id AND line.outcome NOT IN ('snoozed', 'released')
        ) AS told_attempts
    FROM redrive_jobs AS job
    WHERE job.id > :after_id AND job.id <= :until AND job.attempt > 0
        -- The history of a catch job keeps its newest attempts only.
        AND (job.parent_id IS NULL OR job.attempt <= :history)
) AS told
WHERE ended <> told_attempts
LIMIT :count
