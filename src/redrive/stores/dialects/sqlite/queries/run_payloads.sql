-- Replace the arguments of runs that begin again.
-- Called by settle.
UPDATE redrive_payloads SET payload = :payload WHERE job_id = :job_id
