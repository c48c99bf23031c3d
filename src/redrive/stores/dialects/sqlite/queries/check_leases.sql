-- Return the leases that more than one job holds.
-- Called by check.
SELECT min(id) AS id, 'lease ' || lease_id || ' is held by ' || count(*) || ' jobs, the first is job ' || min(id) AS text,
    'leases' AS rule
FROM (
    SELECT id, lease_id FROM redrive_jobs WHERE state = 'running'
    UNION ALL
    SELECT id, lease_id FROM redrive_jobs WHERE state = 'waiting'
) AS held
GROUP BY lease_id
HAVING count(*) > 1
LIMIT :count
