-- Return events that wait without an instance that shows it, and those with a transition that is not their instance's.
-- Called by check, for a range of ids.
SELECT
    move.id,
    CASE
        WHEN move.status = 'queued' AND instance.key IS NOT NULL THEN
            move.machine || '/' || move.key || ' does not show that its event ' || move.id || ' waits'
        WHEN move.status = 'queued' THEN
            move.machine || '/' || move.key || ' was deleted, and its event ' || move.id || ' waits'
        ELSE move.machine || '/' || move.key || ' has left the event ' || move.id || ', whose transition runs'
    END AS text,
    'machines' AS rule
FROM redrive_moves AS move
LEFT JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
WHERE move.id > :after_id AND move.id <= :until
    AND (
        (move.status = 'running' AND (instance.job_id IS NULL OR instance.job_id <> move.id))
        OR (move.status = 'queued' AND instance.key IS NULL)
        OR (move.status = 'queued' AND move.noted = 1 AND instance.waiting IS NULL)
    )
LIMIT :count
