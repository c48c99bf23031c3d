-- Retires a policy that no job has; the next enqueue with this policy takes that back.
-- Called by forget_policy.
UPDATE redrive_policies SET retired_at = :now
WHERE digest = :digest AND retired_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = redrive_policies.digest)
