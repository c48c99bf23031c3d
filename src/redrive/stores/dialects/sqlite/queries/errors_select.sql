-- Return error groups with their dead jobs up to a limit and the failures of 24 hours, the latest failure first.
-- Called by groups.
SELECT fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id, muted_at, muted_until,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
            LIMIT :most
        ) AS counted
    ) AS dead,
    (
        SELECT json_group_array(failures) FROM (
            WITH RECURSIVE hours (hour) AS (SELECT 0 UNION ALL SELECT hour + 1 FROM hours WHERE hour < 23)
            SELECT coalesce(sum(failures), 0) AS failures
            FROM hours
            LEFT JOIN redrive_error_hours AS counted
                ON counted.fingerprint = found.fingerprint AND counted.at = :since + hour * 3600000000
            GROUP BY hour
            ORDER BY hour
        ) AS series
    ) AS hours,
    (
        SELECT coalesce(sum(deaths), 0) FROM redrive_error_hours AS counted
        WHERE counted.fingerprint = found.fingerprint AND at >= :since
    ) AS deaths
FROM redrive_errors AS found
WHERE (:fingerprint IS NULL OR fingerprint = :fingerprint)
    AND (:task IS NULL OR task = :task)
    AND (:before_at IS NULL OR last_at < :before_at OR (last_at = :before_at AND fingerprint < :before))
    AND (
        NOT :dead
        OR EXISTS (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
        )
    )
    AND (
        NOT :unmuted OR muted_at IS NULL OR (muted_until IS NULL AND last_at > muted_at) OR muted_until <= :now
    )
ORDER BY last_at DESC, fingerprint DESC
LIMIT :count
