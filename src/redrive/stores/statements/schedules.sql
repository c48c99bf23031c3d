-- The statements of operations/schedules.py.

-- name: schedules_select
-- Return these schedules, or all.
-- transaction: none
-- both
SELECT name, kind, document, timing, declared_at, paused_at, paused_by, resumed_at, next_at, job_id, queued_at, created
FROM redrive_schedules
WHERE :names::text[] IS NULL OR name = ANY (:names)
ORDER BY name

-- name: schedule_put
-- Write the declarations of schedules; a schedule that exists stays, unless it is to be replaced and differs.
-- Planned times stay if the timing stays.
-- postgres
INSERT INTO redrive_schedules AS known (name, kind, document, timing, declared_at, next_at, created)
SELECT name, kind, document, timing, declared_at, next_at, created
FROM unnest(
    :name::text[], :kind::text[], :document::text[], :timing::text[], :declared_at::timestamptz[],
    :next_at::timestamptz[], :created::boolean[]
) AS given (name, kind, document, timing, declared_at, next_at, created)
ON CONFLICT (name) DO UPDATE SET
    kind = excluded.kind,
    document = excluded.document,
    timing = excluded.timing,
    declared_at = excluded.declared_at,
    created = excluded.created,
    next_at = CASE
        WHEN known.timing = excluded.timing AND known.kind = excluded.kind THEN known.next_at ELSE excluded.next_at
    END,
    job_id = CASE WHEN known.kind = excluded.kind THEN known.job_id END,
    queued_at = CASE WHEN known.kind = excluded.kind THEN known.queued_at END
WHERE (:replaces::boolean[])[1] AND (
    known.document <> excluded.document OR known.kind <> excluded.kind OR known.created <> excluded.created
)
-- sqlite
INSERT INTO redrive_schedules (name, kind, document, timing, declared_at, next_at, created)
VALUES (:name, :kind, :document, :timing, :declared_at, :next_at, :created)
ON CONFLICT (name) DO UPDATE SET
    kind = excluded.kind,
    document = excluded.document,
    timing = excluded.timing,
    declared_at = excluded.declared_at,
    created = excluded.created,
    next_at = CASE
        WHEN redrive_schedules.timing = excluded.timing AND redrive_schedules.kind = excluded.kind
        THEN redrive_schedules.next_at ELSE excluded.next_at
    END,
    job_id = CASE WHEN redrive_schedules.kind = excluded.kind THEN redrive_schedules.job_id END,
    queued_at = CASE WHEN redrive_schedules.kind = excluded.kind THEN redrive_schedules.queued_at END
WHERE :replaces AND (
    redrive_schedules.document <> excluded.document OR redrive_schedules.kind <> excluded.kind
    OR redrive_schedules.created <> excluded.created
)

-- name: schedules_due
-- Return for each schedule when it is due, and whether an older policy has set the times of some of its items.
-- A few index probes for each schedule, independent of the number of items.
-- transaction: none
-- both
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
    coalesce(:now::timestamptz, clock.now) AS now
FROM redrive_schedules AS known
CROSS JOIN redrive_clock AS clock

-- name: schedule_lock
-- Return one schedule, and lock it until the transaction ends.
-- SQLite needs no lock.
-- both
SELECT name, kind, document, timing, declared_at, paused_at, paused_by, resumed_at, next_at, job_id, queued_at, created
FROM redrive_schedules
WHERE name = :name
FOR UPDATE

-- name: schedule_move
-- Write the state of a schedule.
-- both
UPDATE redrive_schedules SET
    paused_at = :paused_at::timestamptz,
    paused_by = :paused_by::text,
    resumed_at = :resumed_at::timestamptz,
    next_at = :next_at::timestamptz,
    job_id = :job_id::bigint,
    queued_at = :queued_at::timestamptz
WHERE name = :name

-- name: occurrences_select
-- Return the decided occurrences of a cron, the latest first.
-- both
SELECT schedule, occurs_at, decided_at, decision, job_id, note
FROM redrive_occurrences
WHERE schedule = :schedule AND (:before::timestamptz IS NULL OR occurs_at < :before)
ORDER BY occurs_at DESC
LIMIT :count::bigint

-- name: occurrences_outcomes
-- Return the latest decided occurrences of crons, a number of each, with their jobs; a job may be deleted.
-- A few index probes for each schedule.
-- both
SELECT
    found.schedule, found.occurs_at, found.decided_at, found.decision, found.job_id, found.note, job.state,
    job.caught_at IS NOT NULL AS caught, job.attempt AS attempts, job.started_at, job.finished_at, job.reason,
    job.error, job.fingerprint
FROM redrive_schedules AS known
CROSS JOIN redrive_occurrences AS found
LEFT JOIN redrive_jobs AS job ON job.id = found.job_id
WHERE (:names::text[] IS NULL OR known.name = ANY (:names)) AND found.schedule = known.name
    AND (:before::timestamptz IS NULL OR found.occurs_at < :before)
    AND found.occurs_at >= (
        -- Turso ignores the OFFSET of a subquery that depends on its outer query.
        SELECT min(occurs_at) FROM (
            SELECT occurs_at FROM redrive_occurrences
            WHERE schedule = known.name AND (:before::timestamptz IS NULL OR occurs_at < :before)
            ORDER BY occurs_at DESC
            LIMIT :count::bigint
        ) AS latest
    )
ORDER BY found.schedule, found.occurs_at DESC

-- name: occurrences_forget
-- Delete occurrences that were decided long ago, and return a row for each.
-- One batch at a time.
-- postgres
DELETE FROM redrive_occurrences
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM redrive_occurrences
    WHERE decided_at <= :until::timestamptz
    ORDER BY decided_at
    LIMIT :count::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING 1
-- sqlite
DELETE FROM redrive_occurrences
WHERE (schedule, occurs_at) IN (
    SELECT schedule, occurs_at FROM redrive_occurrences WHERE decided_at <= :until ORDER BY decided_at LIMIT :count
)
RETURNING 1
