-- Takes numbers that are never handed out again, each as a block of one.
-- Called by enqueue (job), claim (lease) and register (worker).
SELECT number, number
FROM (
    SELECT nextval(CASE :name::text
        WHEN 'job' THEN 'redrive_job_ids'::regclass
        WHEN 'lease' THEN 'redrive_lease_ids'::regclass
        WHEN 'worker' THEN 'redrive_worker_ids'::regclass
    END) AS number
    FROM generate_series(1, :count::bigint)
) AS taken
