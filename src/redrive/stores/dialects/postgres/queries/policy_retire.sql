-- Retire the rows of a policy that no job has: the next enqueue with this policy inserts it again.
-- Called by forget_policy; rows of transactions that have not ended are not visible, and stay as they are.
UPDATE redrive_policies AS known SET retired_at = :now::timestamptz
WHERE digest = :digest AND retired_at IS NULL AND NOT EXISTS (SELECT FROM redrive_jobs WHERE policy = known.digest)
