-- Give events the lowest transaction id, which every snapshot of this server sees, and return their ids.
-- Called by rebase, in batches.
UPDATE redrive_events SET xid = '3'
WHERE topic = :topic::text AND id = ANY (ARRAY(
    SELECT id FROM redrive_events
    WHERE topic = :topic AND id > :after::bigint AND id <= :last_id::bigint
    ORDER BY id LIMIT :count::bigint
))
RETURNING id
