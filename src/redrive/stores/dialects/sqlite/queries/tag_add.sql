-- Give jobs a tag that some of them may have.
-- Called by redrive.
INSERT INTO redrive_tags (tag, job_id)
VALUES (:tag, :job_id)
ON CONFLICT DO NOTHING
