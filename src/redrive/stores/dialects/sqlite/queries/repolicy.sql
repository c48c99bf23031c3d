-- Give jobs another policy; due times stay, except of jobs that are held because their policy cannot be read.
-- Called by repolicy.
UPDATE redrive_jobs SET
    policy = :policy,
    timeout_for = :timeout_for,
    by_rule = NULL,
    scheduled_at = CASE WHEN hold = 'bad_policy' THEN :now ELSE scheduled_at END,
    unreadable_at = CASE WHEN hold = 'bad_policy' THEN NULL ELSE unreadable_at END,
    hold = CASE WHEN hold = 'bad_policy' THEN NULL ELSE hold END
WHERE id IN (SELECT value FROM json_each(:ids)) AND (state IN ('ready', 'waiting') OR (state = 'running' AND hold = 'bad_policy'))
