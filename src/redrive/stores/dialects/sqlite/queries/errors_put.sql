-- Write error groups as a worker has seen them; of all writes the first and the last failure count.
-- Called by write_counters.
INSERT INTO redrive_errors (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
VALUES (:fingerprint, :task, :reason, :type, :title, :frame, :first_at, :last_at, :last_job_id)
ON CONFLICT (fingerprint) DO UPDATE SET
    first_at = min(redrive_errors.first_at, excluded.first_at),
    last_job_id = CASE
        WHEN excluded.last_at > redrive_errors.last_at THEN excluded.last_job_id ELSE redrive_errors.last_job_id
    END,
    last_at = max(redrive_errors.last_at, excluded.last_at)
WHERE excluded.first_at < redrive_errors.first_at OR excluded.last_at > redrive_errors.last_at
