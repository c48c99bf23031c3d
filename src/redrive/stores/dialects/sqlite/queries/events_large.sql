-- Return the highest id of the events of a range that exceed a number of bytes, and the bytes of all; the newest count first.
-- Called by prune, for one page of events or for those beyond the last page.
SELECT max(CASE WHEN total > :bytes THEN id END) AS last_id, coalesce(max(total), 0) AS bytes FROM (
    SELECT id, sum(length(payload)) OVER (ORDER BY id DESC) AS total FROM redrive_events
    WHERE topic = :topic AND id > :after AND id <= :until
) AS summed
