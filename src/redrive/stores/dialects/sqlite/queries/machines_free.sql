-- Lock instances of a machine that are free for a waiting event that the code has, or show one that waits no more.
-- Called by take_turns.
SELECT
    instance.machine, instance.key, instance.state, instance.to_state, instance.status, instance.job_id,
    instance.event, instance.moves, instance.created_at, instance.entered_at,
    instance.timeout_at, instance.timeout_event, instance.timeout_payload,
    instance.data, instance.error, instance.version, instance.waiting
FROM redrive_instances AS instance
WHERE instance.machine = :machine AND instance.waiting IS NOT NULL
    AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
    AND (
        instance.state IS NULL
        OR instance.machine || '/' || instance.state IN (SELECT value FROM json_each(:states))
    )
    AND coalesce((
        SELECT head.machine || '/' || head.event IN (SELECT value FROM json_each(:events)) FROM redrive_moves AS head
        WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
            AND (instance.waiting = 'event' OR head.source = 'failed_to')
        ORDER BY head.id
        LIMIT 1
    ), 1)
ORDER BY instance.entered_at
LIMIT :count
