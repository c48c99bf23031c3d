-- Write the cursor of a locked shard.
-- Called by turn.
UPDATE redrive_shards SET
    turns = :turns::bigint, seen = :seen::text::pg_snapshot, until = :until::text::pg_snapshot, at_id = :at_id::bigint,
    done_id = :done_id::bigint, unfinished = :unfinished::bigint[], ahead_id = :ahead_id::bigint, stuck_id = :stuck_id::bigint, stuck_why = :stuck_why::text
WHERE topic = :topic::text AND subscription = :subscription::text AND shard = :shard::integer
