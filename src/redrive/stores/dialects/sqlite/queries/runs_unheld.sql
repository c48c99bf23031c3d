-- Make the held runs of these workflows due now.
-- Called by look_again, when a worker starts with the code of these workflows.
UPDATE redrive_jobs SET scheduled_at = min(scheduled_at, :now)
WHERE hold = 'held' AND state = 'ready' AND task IN (SELECT value FROM json_each(:tasks))
RETURNING id
