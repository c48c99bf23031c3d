-- Put the cursors of a subscription at another position; what its feeders have read is void.
-- Called by move and reshard.
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen::text::pg_snapshot, until = :until::text::pg_snapshot, at_id = :at_id::bigint,
    done_id = 0, unfinished = '{}', ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic::text AND subscription = :subscription::text
