-- Insert the size of the next page of events of a topic, and return its last id; nothing while the page is not full.
-- Called by prune.
INSERT INTO redrive_event_pages (topic, last_id, bytes)
SELECT :topic, last_id, bytes FROM (
    SELECT max(id) AS last_id, sum(length(payload)) AS bytes, count(*) AS events FROM (
        SELECT id, payload FROM redrive_events
        WHERE topic = :topic
            AND id > coalesce((SELECT max(last_id) FROM redrive_event_pages WHERE topic = :topic), 0)
        ORDER BY id LIMIT :count
    ) AS next
) AS page
WHERE events = :count
RETURNING last_id
