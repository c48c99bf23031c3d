-- Deletes a policy that was retired before this instant, unless a job has it; answers its digest if so.
-- Called by forget_policy.
DELETE FROM redrive_policies
WHERE digest = :digest AND retired_at <= :before
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = redrive_policies.digest)
RETURNING digest
