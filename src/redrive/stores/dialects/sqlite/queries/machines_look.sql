-- Return the instant, the next timeout that the code has, and which events wait; see DueTurns.
-- Called by look. Each part reads the first fitting entry of an index for each machine.
SELECT
    coalesce(:now, clock.now) AS now,
    (
        SELECT min((
            SELECT timeout_at FROM redrive_instances
            WHERE machine = given.value AND timeout_at IS NOT NULL AND job_id IS NULL
                AND machine || '/' || state IN (SELECT value FROM json_each(:states))
                AND machine || '/' || timeout_event IN (SELECT value FROM json_each(:events))
            ORDER BY timeout_at
            LIMIT 1
        )) FROM json_each(:machines) AS given
    ) AS timeout_at,
    EXISTS (
        SELECT 1
        FROM json_each(:machines) AS given
        CROSS JOIN redrive_moves AS move ON move.machine = given.value
        CROSS JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
        WHERE move.status = 'queued' AND move.noted = 0
    ) AS new,
    EXISTS (
        SELECT 1
        FROM json_each(:machines) AS given
        CROSS JOIN redrive_instances AS instance ON instance.machine = given.value
        WHERE instance.waiting IS NOT NULL
            AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
            AND (
                instance.state IS NULL
                OR instance.machine || '/' || instance.state IN (SELECT value FROM json_each(:states))
            )
            AND coalesce((
                SELECT head.machine || '/' || head.event IN (SELECT value FROM json_each(:events))
                FROM redrive_moves AS head
                WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
                    AND (instance.waiting = 'event' OR head.source = 'failed_to')
                ORDER BY head.id
                LIMIT 1
            ), 1)
    ) AS startable,
    EXISTS (
        SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine IN (SELECT value FROM json_each(:machines))
    ) AS waiting
FROM redrive_clock AS clock
