-- Return error groups with their dead jobs up to a limit and the failures of 24 hours, the latest failure first.
-- Called by groups.
SELECT fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id, muted_at, muted_until,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
            LIMIT :most::bigint
        ) AS counted
    ) AS dead,
    ARRAY(
        SELECT coalesce(sum(failures), 0)::bigint
        FROM generate_series(0, 23) AS hour
        LEFT JOIN redrive_error_hours AS counted
            ON counted.fingerprint = found.fingerprint
            AND counted.at = :since::timestamptz + hour * interval '1 hour'
        GROUP BY hour
        ORDER BY hour
    ) AS hours,
    (
        SELECT coalesce(sum(deaths), 0)::bigint FROM redrive_error_hours AS counted
        WHERE counted.fingerprint = found.fingerprint AND at >= :since
    ) AS deaths
FROM redrive_errors AS found
WHERE (:fingerprint::text IS NULL OR fingerprint = :fingerprint)
    AND (:task::text IS NULL OR task = :task)
    AND (:before_at::timestamptz IS NULL OR (last_at, fingerprint) < (:before_at, :before::text))
    AND (
        NOT :dead::boolean
        OR EXISTS (
            SELECT FROM redrive_jobs AS job
            WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
        )
    )
    AND (
        NOT :unmuted::boolean OR muted_at IS NULL OR (muted_until IS NULL AND last_at > muted_at) OR muted_until <= :now::timestamptz
    )
ORDER BY last_at DESC, fingerprint DESC
LIMIT :count::bigint
