-- Make the held runs of these workflows due now.
-- Called by look_again, when a worker starts with the code of these workflows.
UPDATE redrive_jobs SET scheduled_at = least(scheduled_at, :now::timestamptz)
WHERE hold = 'held' AND state = 'ready' AND task = ANY (:tasks::text[])
RETURNING id
