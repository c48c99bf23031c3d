-- Strikes workers off that fell silent or are known to be gone; one that was only asleep registers again.
-- Called by sweep, before it looks for what they held. Who is just beating, or stopped within a beat, stops no sweep.
UPDATE redrive_workers SET stopped_at = :now::timestamptz
WHERE id IN (
    SELECT id FROM redrive_workers
    WHERE stopped_at IS NULL AND (expires_at <= :now OR id = ANY (:gone::bigint[]))
    FOR UPDATE SKIP LOCKED
)
