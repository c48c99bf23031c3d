-- Insert the size of the next page of events of a topic, and return its last id; nothing while the page is not full.
-- Called by prune. An event that commits with a lower id later is not counted, so that a size is slightly too small.
INSERT INTO redrive_event_pages (topic, last_id, bytes)
SELECT :topic::text, max(id), sum(octet_length(payload)) FROM (
    SELECT id, payload FROM redrive_events
    WHERE topic = :topic
        AND id > coalesce((SELECT max(last_id) FROM redrive_event_pages WHERE topic = :topic), 0)
    ORDER BY id LIMIT :count::bigint
) AS next
HAVING count(*) = :count
ON CONFLICT DO NOTHING
RETURNING last_id
