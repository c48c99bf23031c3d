-- Mark dead jobs as caught.
-- Called by settle when their catch jobs have succeeded.
UPDATE redrive_jobs SET caught_at = :now WHERE id = :job_id AND state = 'dead' AND caught_at IS NULL
