-- Gives jobs another policy; when they are due stays as it is.
-- Called by repolicy.
UPDATE redrive_jobs SET
    policy = :policy::text,
    timeout_for = :timeout_for::interval,
    by_rule = NULL
WHERE id = ANY (:ids::bigint[]) AND state IN ('ready', 'waiting')
