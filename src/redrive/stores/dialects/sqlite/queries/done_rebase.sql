-- Keep the rows of ended deliveries valid, because each shard gets the next epoch.
-- Called by rebase.
UPDATE redrive_done SET epoch = epoch + 1
