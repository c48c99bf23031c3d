-- Set the snapshot at which the shards of a subscription end.
-- Called by reshard, under the locks of the shards.
UPDATE redrive_shards SET final = :final::text::pg_snapshot
WHERE topic = :topic::text AND subscription = :subscription::text
