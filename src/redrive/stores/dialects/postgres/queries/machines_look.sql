-- Return the instant, the next timeout that the code has, and whether events wait; `startable`: the code can start one.
-- Called by look.
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (
        SELECT min(timeout_at) FROM redrive_instances
        WHERE timeout_at IS NOT NULL AND job_id IS NULL AND machine = ANY (:machines::text[])
            AND machine || '/' || state = ANY (:states::text[])
            AND machine || '/' || timeout_event = ANY (:events::text[])
    ) AS timeout_at,
    EXISTS (
            SELECT 1 FROM redrive_moves AS waiting
            JOIN redrive_instances AS instance ON instance.machine = waiting.machine AND instance.key = waiting.key
            WHERE waiting.status = 'queued' AND waiting.machine = ANY (:machines::text[])
                AND (instance.job_id IS NULL OR (instance.status = 'failed' AND waiting.source = 'failed_to'))
                AND (instance.state IS NULL OR instance.machine || '/' || instance.state = ANY (:states::text[]))
                AND waiting.machine || '/' || waiting.event = ANY (:events::text[])
                AND (waiting.source = 'failed_to' OR NOT EXISTS (
                    SELECT 1 FROM redrive_moves AS before
                    WHERE before.machine = waiting.machine AND before.key = waiting.key AND before.status = 'queued'
                        AND before.id < waiting.id
                ))
        ) AS startable,
    EXISTS (
        SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine = ANY (:machines::text[])
    ) AS waiting
FROM redrive_clock AS clock
