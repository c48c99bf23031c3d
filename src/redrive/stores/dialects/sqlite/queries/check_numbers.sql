-- Answers the jobs whose history does not have each attempt that was counted: one of them was not ended by its lease (I2).
-- Called by check. What was given back or snoozed is not counted, and leaves its number to the next attempt.
SELECT id, 'job ' || id || ' counts ' || ended || ' attempts that have ended, but its history has ' || told_attempts AS text,
    'attempts' AS rule
FROM (
    SELECT job.id, job.attempt - CASE WHEN job.lease_id IS NULL THEN 0 ELSE 1 END AS ended, (
            SELECT count(DISTINCT line.number) FROM redrive_attempts AS line
            WHERE line.job_id = job.id AND line.outcome NOT IN ('snoozed', 'released')
        ) AS told_attempts
    FROM redrive_jobs AS job
    WHERE job.id > :after_id AND job.id <= :until AND job.attempt > 0
) AS told
WHERE ended <> told_attempts
LIMIT :count
