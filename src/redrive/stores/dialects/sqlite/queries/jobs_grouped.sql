-- Return ids of dead jobs of an error group, newest first, up to a limit.
-- Called by select, to find whether they are few, and by page.
SELECT id FROM redrive_jobs
WHERE fingerprint = :group AND state = 'dead' AND caught_at IS NULL AND id > :after_id AND id < :before_id
ORDER BY id DESC
LIMIT :most
