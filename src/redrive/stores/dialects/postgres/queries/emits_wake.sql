-- Make parked runs due that wait for pending emitted values, and return them.
-- Called by wake, before emits_offered.
WITH held AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    WHERE id = ANY (ARRAY(
            SELECT step.run_id FROM redrive_steps AS step
            WHERE step.outcome = 'waiting' AND step.kind = 'event'
                AND step.name = ANY (ARRAY(SELECT name FROM redrive_emits WHERE pending ORDER BY name LIMIT :count::bigint))
        ))
        -- As in settle_succeeded: the planner must not use the index of held jobs.
        AND state = 'ready' AND coalesce(hold, '') = 'parked' AND scheduled_at > :now::timestamptz
    ORDER BY id
    LIMIT :count
    FOR UPDATE SKIP LOCKED
)
UPDATE redrive_jobs SET scheduled_at = :now WHERE id = ANY (ARRAY(SELECT id FROM held))
RETURNING id
