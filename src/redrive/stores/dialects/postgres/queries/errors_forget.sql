-- Delete error groups that have not failed since an instant and have no dead job.
-- Called by forget_counters and empty.
DELETE FROM redrive_errors AS found
WHERE last_at < :before::timestamptz
    AND NOT EXISTS (
        SELECT FROM redrive_jobs AS job
        WHERE job.fingerprint = found.fingerprint AND state = 'dead' AND caught_at IS NULL
        OFFSET 0
    )
