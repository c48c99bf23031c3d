-- Put the cursor of a shard at a position of this server; what its feeder has read is void.
-- Called by rebase.
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen::text::pg_snapshot, until = :until::text::pg_snapshot, final = :final::text::pg_snapshot,
    at_id = :at_id::bigint, done_id = 0, unfinished = '{}', ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic::text AND subscription = :subscription::text AND shard = :shard::integer
