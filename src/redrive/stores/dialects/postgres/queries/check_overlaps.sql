-- Return the attempts that began more than a minute before an earlier attempt of the same job had ended.
-- Called by check. The minute allows for clocks that were set back.
SELECT one.job_id AS id, 'lease ' || one.lease_id || ' of job ' || one.job_id || ' began before lease ' || other.lease_id
    || ' had ended: two attempts ran at once, or the clock was set back' AS text,
    'overlaps' AS rule
FROM (
    SELECT job_id, lease_id, started_at FROM redrive_attempts WHERE job_id > :after_id::bigint AND job_id <= :until::bigint
    UNION ALL
    SELECT id, coalesce(lease_id, success_lease_id), claimed_at FROM redrive_jobs
    WHERE id > :after_id::bigint AND id <= :until::bigint AND coalesce(lease_id, success_lease_id) IS NOT NULL
) AS one
JOIN redrive_attempts AS other ON other.job_id = one.job_id AND other.lease_id < one.lease_id
WHERE other.finished_at > one.started_at + interval '1 minute'
LIMIT :count::bigint
