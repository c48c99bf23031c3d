-- Give events the lowest transaction id, which every snapshot of this server sees, and return their ids.
-- Called by rebase, in batches.
UPDATE redrive_events SET xid = '3'
-- A range, and not a list of ids: a restored table has no statistics, and the planner would look a list up in the index
-- on transaction ids, which it then reads from end to end for each batch.
WHERE topic = :topic::text AND id > :after::bigint AND id <= (
    SELECT max(id) FROM (
        SELECT id FROM redrive_events
        WHERE topic = :topic AND id > :after AND id <= :last_id::bigint
        ORDER BY id LIMIT :count::bigint
    ) AS page
)
RETURNING id
