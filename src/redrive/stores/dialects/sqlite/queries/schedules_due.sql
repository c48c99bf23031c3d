-- Return for each schedule when it is due, and whether an older policy has set the times of some of its items.
-- Called by status; a few index probes for each schedule, independent of the number of items.
SELECT
    known.name,
    known.kind,
    known.created,
    CASE
        WHEN known.paused_at IS NOT NULL THEN NULL
        WHEN known.kind = 'cron' THEN known.next_at
        ELSE (
            SELECT refresh_at FROM redrive_refreshes
            WHERE schedule = known.name AND refresh_at IS NOT NULL AND job_id IS NULL AND NOT paused
            ORDER BY refresh_at LIMIT 1
        )
    END AS due_at,
    -- The first and the last one: for other conditions the planner may read all items to find that none differs.
    coalesce((
        SELECT timing FROM redrive_refreshes
        WHERE own IS NULL AND schedule = known.name
        ORDER BY timing LIMIT 1
    ), known.timing) <> known.timing OR coalesce((
        SELECT timing FROM redrive_refreshes
        WHERE own IS NULL AND schedule = known.name
        ORDER BY timing DESC LIMIT 1
    ), known.timing) <> known.timing AS is_stale,
    (SELECT sweep_at FROM redrive_refreshes WHERE sweep_at IS NOT NULL ORDER BY sweep_at LIMIT 1) AS sweep_at,
    coalesce(:now, clock.now) AS now
FROM redrive_schedules AS known
CROSS JOIN redrive_clock AS clock
