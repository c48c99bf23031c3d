-- Lock instances of these machines that are free for a waiting event that the code has, without locked ones.
-- Called by take_turns.
SELECT
    instance.machine, instance.key, instance.state, instance.to_state, instance.status, instance.job_id,
    instance.event, instance.moves, instance.created_at, instance.entered_at,
    instance.timeout_at, instance.timeout_event, instance.timeout_payload,
    instance.data, instance.error, instance.version
FROM (
    SELECT machine, key, max(source = 'failed_to') AS failed, min(id) AS id FROM redrive_moves
    WHERE status = 'queued' AND machine IN (SELECT value FROM json_each(:machines))
    GROUP BY machine, key
) AS waiting
JOIN redrive_instances AS instance ON instance.machine = waiting.machine AND instance.key = waiting.key
JOIN redrive_moves AS head ON head.id = waiting.id
WHERE (instance.job_id IS NULL OR (instance.status = 'failed' AND waiting.failed))
    AND (
        instance.state IS NULL
        OR instance.machine || '/' || instance.state IN (SELECT value FROM json_each(:states))
    )
    AND head.machine || '/' || CASE WHEN waiting.failed THEN 'FailedTransition' ELSE head.event END
    IN (SELECT value FROM json_each(:events))
ORDER BY waiting.id
LIMIT :count
