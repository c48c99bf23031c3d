-- Return the highest id of the events that a topic has beyond a number of bytes; NULL if it has fewer.
-- Called by prune. The newest events are kept.
SELECT max(id) FROM (
    SELECT id, sum(octet_length(payload)) OVER (ORDER BY id DESC) AS total FROM redrive_events
    WHERE topic = :topic::text
) AS summed
WHERE total > :bytes::bigint
