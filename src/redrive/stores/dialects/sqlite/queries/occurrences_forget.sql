-- Delete occurrences that were decided long ago, and return a row for each.
-- Called by forget_occurrences, a batch at a time.
DELETE FROM redrive_occurrences
WHERE (schedule, occurs_at) IN (
    SELECT schedule, occurs_at FROM redrive_occurrences WHERE decided_at <= :until ORDER BY decided_at LIMIT :count
)
RETURNING 1
