-- Replace the arguments of one job.
-- Called by enqueue for a debounced job that exists.
UPDATE redrive_payloads SET payload = :payload WHERE job_id = :job_id
