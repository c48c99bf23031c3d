-- Answers a row if a job has this policy.
-- Called by forget_policy when it is deleted already; where there is one writer, nobody can have come in between.
SELECT 1 FROM redrive_jobs WHERE policy = :digest LIMIT 1
