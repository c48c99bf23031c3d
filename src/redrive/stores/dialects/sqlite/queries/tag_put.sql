-- Write the tags of new jobs.
-- Called by enqueue, if jobs have tags.
INSERT INTO redrive_tags (tag, job_id) VALUES (:tag, :job_id)
