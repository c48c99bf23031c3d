-- Write the tags of new jobs.
-- Called by enqueue, if jobs have tags.
-- transaction: last
INSERT INTO redrive_tags (tag, job_id)
SELECT * FROM unnest(:tag::text[], :job_id::bigint[])
