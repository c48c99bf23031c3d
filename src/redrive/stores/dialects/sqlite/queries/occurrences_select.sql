-- Return the decided occurrences of a cron, the latest first.
-- Called by occurrences.
SELECT schedule, occurs_at, decided_at, decision, job_id, note
FROM redrive_occurrences
WHERE schedule = :schedule AND (:before IS NULL OR occurs_at < :before)
ORDER BY occurs_at DESC
LIMIT :count
