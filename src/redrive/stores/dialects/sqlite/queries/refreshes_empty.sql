-- Delete all tracked items.
-- Called by empty.
DELETE FROM redrive_refreshes
