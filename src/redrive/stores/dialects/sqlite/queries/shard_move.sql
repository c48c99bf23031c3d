-- Put the cursors of a subscription at another position; what its feeders have read is void.
-- Called by move and reshard.
UPDATE redrive_shards SET
    epoch = epoch + 1, seen = :seen, until = :until, at_id = :at_id, done_id = 0, unfinished = '[]',
    ahead_id = :at_id, stuck_id = NULL, stuck_why = NULL
WHERE topic = :topic AND subscription = :subscription
