-- Lets the running attempts of a queue take up places.
-- Called when a limit is set, so that what runs already counts.
UPDATE redrive_jobs SET slot = :queue WHERE state = 'running' AND queue = :queue AND slot IS NULL
