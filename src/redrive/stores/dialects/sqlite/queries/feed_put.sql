-- Write the cursor of a locked shard.
-- Called by turn.
UPDATE redrive_shards SET
    turns = :turns, seen = :seen, until = :until, at_id = :at_id, done_id = :done_id,
    unfinished = :unfinished, ahead_id = :ahead_id, stuck_id = :stuck_id, stuck_why = :stuck_why
WHERE topic = :topic AND subscription = :subscription AND shard = :shard
