-- Return the highest id of the events of a range that exceed a number of bytes, and the bytes of all; the newest count first.
-- Called by prune, for one page of events or for those beyond the last page.
SELECT max(CASE WHEN total > :bytes::bigint THEN id END) AS last_id, coalesce(max(total), 0)::bigint AS bytes FROM (
    SELECT id, sum(octet_length(payload)) OVER (ORDER BY id DESC) AS total FROM redrive_events
    WHERE topic = :topic::text AND id > :after::bigint AND id <= :until::bigint
) AS summed
