-- Return events that wait although their instance is gone, and those with a transition that is not that of their instance.
-- Called by check, for a range of ids.
SELECT
    move.id,
    CASE
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
    )
LIMIT :count
