-- Return the sequences that would hand out a number for the second time.
-- Called by check.
SELECT newest AS id, used.name || ' ' || newest || ' is there, but the next one would be ' || (value + 1) AS text,
    'sequences' AS rule
FROM (
    SELECT 'job' AS name, max(id) AS newest FROM redrive_jobs
    UNION ALL
    SELECT 'lease', max(lease_id) >> 20 FROM redrive_jobs WHERE state = 'running'
    UNION ALL
    SELECT 'worker', max(id) FROM redrive_workers
) AS used
JOIN redrive_sequences AS sequence ON sequence.name = used.name
WHERE newest > value
LIMIT :count
