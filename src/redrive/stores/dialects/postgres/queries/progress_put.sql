-- Write progress reports, each if its lease is still current, and return these leases.
-- Called by report; a report without details keeps the details of the one before.
INSERT INTO redrive_progress AS said (job_id, lease_id, details, at)
SELECT job.id, job.lease_id, coalesce(given.details, old.details, 'null'), given.now
FROM unnest(
    :job_id::bigint[], :lease_id::bigint[], :details::text[], :now::timestamptz[]
) AS given (job_id, lease_id, details, now)
JOIN redrive_jobs AS job ON job.id = given.job_id AND job.lease_id = given.lease_id
LEFT JOIN LATERAL (SELECT details FROM redrive_progress WHERE job_id = given.job_id OFFSET 0) AS old ON true
WHERE job.id = ANY (:job_id)
ON CONFLICT (job_id) DO UPDATE SET lease_id = excluded.lease_id, details = excluded.details, at = excluded.at
RETURNING lease_id
