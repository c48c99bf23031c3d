-- Give jobs a tag that some of them may have.
-- Called by redrive.
INSERT INTO redrive_tags (tag, job_id)
SELECT * FROM unnest(:tag::text[], :job_id::bigint[])
ON CONFLICT DO NOTHING
