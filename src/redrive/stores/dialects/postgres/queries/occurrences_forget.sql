-- Delete occurrences that were decided long ago, and return a row for each.
-- Called by forget_occurrences, a batch at a time.
DELETE FROM redrive_occurrences
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM redrive_occurrences
    WHERE decided_at <= :until::timestamptz
    ORDER BY decided_at
    LIMIT :count::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING 1
