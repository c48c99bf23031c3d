-- Return the instant, the next timeout that the code has, and whether events wait; `startable`: the code can start one.
-- Called by look.
SELECT
    coalesce(:now, clock.now) AS now,
    (
        SELECT min(timeout_at) FROM redrive_instances
        WHERE timeout_at IS NOT NULL AND job_id IS NULL AND machine IN (SELECT value FROM json_each(:machines))
            AND machine || '/' || state IN (SELECT value FROM json_each(:states))
            AND machine || '/' || timeout_event IN (SELECT value FROM json_each(:events))
    ) AS timeout_at,
    EXISTS (
            SELECT 1 FROM redrive_moves AS waiting
            JOIN redrive_instances AS instance ON instance.machine = waiting.machine AND instance.key = waiting.key
            WHERE waiting.status = 'queued' AND waiting.machine IN (SELECT value FROM json_each(:machines))
                AND (instance.job_id IS NULL OR (instance.status = 'failed' AND waiting.source = 'failed_to'))
                AND (
                    instance.state IS NULL
                    OR instance.machine || '/' || instance.state IN (SELECT value FROM json_each(:states))
                )
                AND waiting.machine || '/' || waiting.event IN (SELECT value FROM json_each(:events))
                AND (waiting.source = 'failed_to' OR NOT EXISTS (
                    SELECT 1 FROM redrive_moves AS before
                    WHERE before.machine = waiting.machine AND before.key = waiting.key AND before.status = 'queued'
                        AND before.id < waiting.id
                ))
        ) AS startable,
    EXISTS (
        SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine IN (SELECT value FROM json_each(:machines))
    ) AS waiting
FROM redrive_clock AS clock
