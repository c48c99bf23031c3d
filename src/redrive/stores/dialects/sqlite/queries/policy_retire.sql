-- Retire the rows of a policy that no job has: the next enqueue with this policy inserts it again.
-- Called by forget_policy; rows of transactions that have not ended are not visible, and stay as they are.
UPDATE redrive_policies SET retired_at = :now
WHERE digest = :digest AND retired_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = redrive_policies.digest)
