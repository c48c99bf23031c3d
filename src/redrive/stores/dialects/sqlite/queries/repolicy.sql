-- Gives jobs another policy; when they are due stays as it is.
-- Called by repolicy.
UPDATE redrive_jobs SET
    policy = :policy,
    timeout_for = :timeout_for,
    by_rule = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('ready', 'waiting')
