-- Delete the settings of all queues, with the starts that their rate limits count.
-- Called by empty.
DELETE FROM redrive_queues
