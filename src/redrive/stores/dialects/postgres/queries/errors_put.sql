-- Write error groups as a worker has seen them; of all writes the first and the last failure count.
-- Called by write_counters.
INSERT INTO redrive_errors (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
SELECT * FROM unnest(
    :fingerprint::text[], :task::text[], :reason::text[], :type::text[], :title::text[], :frame::text[],
    :first_at::timestamptz[], :last_at::timestamptz[], :last_job_id::bigint[]
) AS given (fingerprint, task, reason, type, title, frame, first_at, last_at, last_job_id)
-- In one order, so that two workers do not wait for each other.
ORDER BY fingerprint
ON CONFLICT (fingerprint) DO UPDATE SET
    first_at = least(redrive_errors.first_at, excluded.first_at),
    last_job_id = CASE
        WHEN excluded.last_at > redrive_errors.last_at THEN excluded.last_job_id ELSE redrive_errors.last_job_id
    END,
    last_at = greatest(redrive_errors.last_at, excluded.last_at)
WHERE excluded.first_at < redrive_errors.first_at OR excluded.last_at > redrive_errors.last_at
