-- Return the highest id of the first events of a topic that are older than an instant, and how many these are.
-- Called by prune, for one batch.
SELECT count(*) AS events, max(id) AS last_id FROM (
    SELECT id FROM (
        SELECT id, at FROM redrive_events WHERE topic = :topic::text ORDER BY id LIMIT :count::bigint
    ) AS first
    WHERE at < :before::timestamptz
) AS old
