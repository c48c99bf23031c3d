-- Return the instant, when the next timeout of these machines is due, and whether their instances have waiting events.
-- Called by look.
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (
        SELECT min(timeout_at) FROM redrive_instances
        WHERE timeout_at IS NOT NULL AND job_id IS NULL AND machine = ANY (:machines::text[])
    ) AS timeout_at,
    EXISTS (
            SELECT 1 FROM redrive_moves AS waiting
            JOIN redrive_instances AS instance ON instance.machine = waiting.machine AND instance.key = waiting.key
            WHERE waiting.status = 'queued' AND waiting.machine = ANY (:machines::text[])
                AND (instance.job_id IS NULL OR (instance.status = 'failed' AND waiting.source = 'failed_to'))
        ) AS startable,
    EXISTS (
        SELECT 1 FROM redrive_moves WHERE status = 'queued' AND machine = ANY (:machines::text[])
    ) AS waiting
FROM redrive_clock AS clock
