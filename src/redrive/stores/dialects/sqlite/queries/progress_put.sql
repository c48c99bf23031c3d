-- Write progress reports, each if its lease is still current, and return these leases.
-- Called by report; a report without details keeps the details of the one before.
-- many: rows
INSERT INTO redrive_progress (job_id, lease_id, details, at)
SELECT id, lease_id, coalesce(:details, 'null'), :now FROM redrive_jobs WHERE id = :job_id AND lease_id = :lease_id
ON CONFLICT (job_id) DO UPDATE SET
    lease_id = excluded.lease_id,
    details = coalesce(:details, redrive_progress.details),
    at = excluded.at
RETURNING lease_id
