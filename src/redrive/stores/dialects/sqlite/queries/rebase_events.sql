-- Give events the lowest transaction id, which every snapshot of this server sees, and return their ids.
-- Called by rebase, in batches.
SELECT id FROM redrive_events WHERE topic = :topic AND id > :after AND id <= :last_id AND false LIMIT :count
