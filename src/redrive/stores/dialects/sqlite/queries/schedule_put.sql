-- Write the declarations of schedules; a schedule that exists stays, unless it is to be replaced and differs.
-- Called by declare and create, and by track for one that no worker has declared. Planned times stay if the timing stays.
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
