-- Put the cursor of a shard at a position of this server; what its feeder has read is void.
-- Called by rebase.
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen, until = :until, final = :final, at_id = :at_id, done_id = 0,
    unfinished = '[]', ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic AND subscription = :subscription AND shard = :shard
