-- Write the declarations of schedules; a schedule that exists stays, unless it is to be replaced and differs.
-- Called by declare and create, and by track for one that no worker has declared. Planned times stay if the timing stays.
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
