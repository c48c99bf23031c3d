-- Deletes a policy if no job has it, and answers its text if so.
-- Called by forget_policy; who enqueues with this policy from now on waits for the end, and inserts it anew.
DELETE FROM redrive_policies
WHERE digest = :digest::text AND NOT EXISTS (SELECT FROM redrive_jobs WHERE policy = :digest)
RETURNING document
