-- Set the snapshot at which the shards of a subscription end.
-- Called by reshard, under the locks of the shards.
UPDATE redrive_shards SET final = :final WHERE topic = :topic AND subscription = :subscription
