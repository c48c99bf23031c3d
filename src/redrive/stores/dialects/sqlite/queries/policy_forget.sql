-- Delete the rows of a policy that were retired before this instant, unless a job has it; return a row for each.
-- Called by forget_policy; an enqueue that read such a row before it was retired has committed its job long ago.
DELETE FROM redrive_policies
WHERE digest = :digest AND retired_at <= :before
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = redrive_policies.digest)
RETURNING digest
