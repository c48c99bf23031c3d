-- Take numbers that are never handed out again, and return them in blocks.
-- Called by settle for catch jobs (job), register (worker) and claim (lease; PostgreSQL takes leases in the claim).
WITH taken AS MATERIALIZED (
    SELECT min(number) AS first, max(number) AS last, array_agg(number) AS numbers
    FROM (
        SELECT nextval(CASE :name::text
            WHEN 'job' THEN 'redrive_job_ids'::regclass
            WHEN 'lease' THEN 'redrive_lease_ids'::regclass
            WHEN 'worker' THEN 'redrive_worker_ids'::regclass
        END) AS number
        FROM generate_series(1, :count::bigint)
    ) AS single
)
SELECT first, last FROM taken WHERE last - first + 1 = :count
UNION ALL
SELECT number, number FROM taken CROSS JOIN unnest(numbers) AS number WHERE last - first + 1 <> :count
