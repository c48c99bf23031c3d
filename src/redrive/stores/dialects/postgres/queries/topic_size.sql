-- Return the number of events of a topic up to a limit, its first and last id, and when the first was published.
-- Called by rebase, for the ids.
SELECT
    (
        SELECT count(*) FROM (
            SELECT FROM redrive_events WHERE topic = :topic::text ORDER BY id LIMIT :count::bigint
        ) AS first
    ) AS events,
    (SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1) AS first_id,
    (SELECT id FROM redrive_events WHERE topic = :topic ORDER BY id DESC LIMIT 1) AS last_id,
    (SELECT at FROM redrive_events WHERE topic = :topic ORDER BY id LIMIT 1) AS first_at
