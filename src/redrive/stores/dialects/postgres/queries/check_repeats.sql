-- Return the leases that attempts of several jobs of the stride had, and those that were never handed out.
-- Called by check. The same lease in two jobs that are further apart than a stride is not found.
SELECT min(job_id) AS id, 'lease ' || lease_id || ' was held by ' || count(*) || ' jobs, the first is job ' || min(job_id)
    AS text, 'leases' AS rule
FROM redrive_history
WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
GROUP BY lease_id
HAVING count(*) > 1
UNION ALL
SELECT job_id, 'job ' || job_id || ' had lease ' || lease_id || ', which was not handed out yet', 'leases'
FROM redrive_history
WHERE job_id > :after_id::bigint AND job_id <= :until::bigint AND lease_id >> 20 > (SELECT last_value FROM redrive_lease_ids)
LIMIT :count::bigint
