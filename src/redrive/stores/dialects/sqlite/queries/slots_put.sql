-- Let the running attempts of a queue occupy slots.
-- Called when a limit is set, so that running attempts count.
UPDATE redrive_jobs SET slot = :queue WHERE state = 'running' AND queue = :queue AND slot IS NULL
