-- Return the sequences that would hand out a number for the second time.
-- Called by check.
SELECT newest AS id, name || ' ' || newest || ' is there, but the next one would be ' || (value + 1) AS text,
    'sequences' AS rule
FROM (
    SELECT 'job' AS name, (SELECT max(id) FROM redrive_jobs) AS newest, last_value AS value FROM redrive_job_ids
    UNION ALL
    SELECT 'lease', (SELECT max(lease_id) >> 20 FROM redrive_jobs WHERE state = 'running'), last_value
    FROM redrive_lease_ids
    UNION ALL
    SELECT 'worker', (SELECT max(id) FROM redrive_workers), last_value FROM redrive_worker_ids
) AS used
WHERE newest > value
LIMIT :count::bigint
