-- Delete the rows of a policy that were retired before this instant, unless a job has it; return a row for each.
-- Called by forget_policy; an enqueue that read such a row before it was retired has committed its job long ago.
DELETE FROM redrive_policies AS known
WHERE digest = :digest AND retired_at <= :before::timestamptz
    AND NOT EXISTS (SELECT FROM redrive_jobs WHERE policy = known.digest)
RETURNING digest
