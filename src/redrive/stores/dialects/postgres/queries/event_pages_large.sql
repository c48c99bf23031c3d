-- Return the newest page of events at which a topic exceeds a number of bytes, with the page before and the newer bytes.
-- Called by prune; it reads one row for each page.
SELECT
    last_id,
    coalesce((SELECT max(last_id) FROM redrive_event_pages WHERE topic = :topic::text AND last_id < page.last_id), 0) AS after_id,
    (total - bytes)::bigint AS newer
FROM (
    SELECT last_id, bytes, sum(bytes) OVER (ORDER BY last_id DESC) AS total FROM redrive_event_pages
    WHERE topic = :topic
) AS page
WHERE total > :bytes::bigint
ORDER BY last_id DESC
LIMIT 1
