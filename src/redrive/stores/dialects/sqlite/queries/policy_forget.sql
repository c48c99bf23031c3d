-- Deletes a policy if no job has it, and answers its text if so.
-- Called by forget_policy.
DELETE FROM redrive_policies
WHERE digest = :digest AND NOT EXISTS (SELECT 1 FROM redrive_jobs WHERE policy = :digest)
RETURNING document
