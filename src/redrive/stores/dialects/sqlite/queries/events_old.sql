-- Return the highest id of the first events of a topic that are older than an instant, or not above an id.
-- Called by prune, for one batch; it reads no event beyond the batch.
SELECT max(id) AS last_id FROM (
    SELECT id, at FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT :count
) AS first
WHERE at < :before OR id <= :last_id
