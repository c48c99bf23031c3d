-- Mark emitted values as offered once no run can wait for them without having seen them, and return them.
-- Called by wake, after emits_wake.
UPDATE redrive_emits AS emit SET
    -- A run that is being parked may have looked before the value was committed. Its transaction had an id
    -- by then, which is lower than the first id that was free when the value was noticed; so once all these have ended, its
    -- row is visible here.
    noticed = coalesce(noticed, pg_snapshot_xmax(pg_current_snapshot())),
    pending = noticed IS NULL OR noticed > pg_snapshot_xmin(pg_current_snapshot()) OR EXISTS (
        SELECT FROM redrive_steps AS step
        CROSS JOIN LATERAL (
            SELECT FROM redrive_jobs
            WHERE id = step.run_id AND state = 'ready' AND hold = 'parked' AND scheduled_at > :now::timestamptz
            OFFSET 0
        ) AS job
        WHERE step.outcome = 'waiting' AND step.kind = 'event' AND step.name = emit.name
        OFFSET 0
    )
WHERE name = ANY (ARRAY(SELECT name FROM redrive_emits WHERE pending ORDER BY name LIMIT :count::bigint FOR UPDATE SKIP LOCKED))
RETURNING emit.name, emit.pending
