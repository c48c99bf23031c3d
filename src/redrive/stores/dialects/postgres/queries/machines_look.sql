-- Return the instant, the next timeout that the code has, and which events wait; see DueTurns.
-- Called by look. Each part reads the first fitting entry of an index for each machine.
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (
        SELECT min(next.timeout_at)
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT timeout_at FROM redrive_instances
            WHERE machine = given.machine AND timeout_at IS NOT NULL AND job_id IS NULL
                AND machine || '/' || state = ANY (:states::text[])
                AND machine || '/' || timeout_event = ANY (:events::text[])
            ORDER BY timeout_at
            LIMIT 1
        ) AS next
    ) AS timeout_at,
    EXISTS (
        SELECT 1
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT 1 FROM redrive_moves AS move
            JOIN redrive_instances AS instance ON instance.machine = move.machine AND instance.key = move.key
            WHERE move.machine = given.machine AND move.status = 'queued' AND NOT move.noted
            LIMIT 1
        ) AS new
    ) AS new,
    EXISTS (
        SELECT 1
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT 1 FROM redrive_instances AS instance
            WHERE instance.machine = given.machine AND instance.waiting IS NOT NULL
                AND (instance.job_id IS NULL OR (instance.status = 'failed' AND instance.waiting = 'failure'))
                AND (instance.state IS NULL OR instance.machine || '/' || instance.state = ANY (:states::text[]))
                AND coalesce((
                    SELECT head.machine || '/' || head.event = ANY (:events::text[]) FROM redrive_moves AS head
                    WHERE head.machine = instance.machine AND head.key = instance.key AND head.status = 'queued'
                        AND (instance.waiting = 'event' OR head.source = 'failed_to')
                    ORDER BY head.id
                    LIMIT 1
                ), true)
            ORDER BY instance.entered_at
            LIMIT 1
        ) AS free
    ) AS startable,
    EXISTS (
        SELECT 1
        FROM unnest(:machines::text[]) AS given (machine)
        CROSS JOIN LATERAL (
            SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine = given.machine LIMIT 1
        ) AS queued
    ) AS waiting
FROM redrive_clock AS clock
