-- Delete error groups that have not failed since an instant and have no dead job.
-- Called by forget_counters and empty.
DELETE FROM redrive_errors
WHERE last_at < :before
    AND NOT EXISTS (
        SELECT 1 FROM redrive_jobs AS job
        WHERE job.fingerprint = redrive_errors.fingerprint AND state = 'dead' AND caught_at IS NULL
    )
