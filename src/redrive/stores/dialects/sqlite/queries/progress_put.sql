-- Keeps what a handler says of itself if its lease is still current, and answers the lease if so.
-- Called by report; a handler that says nothing new leaves what was said.
INSERT INTO redrive_progress (job_id, lease_id, details, at)
SELECT id, lease_id, coalesce(:details, 'null'), :now FROM redrive_jobs WHERE id = :job_id AND lease_id = :lease_id
ON CONFLICT (job_id) DO UPDATE SET
    lease_id = excluded.lease_id,
    details = coalesce(:details, redrive_progress.details),
    at = excluded.at
RETURNING lease_id
