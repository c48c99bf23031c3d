INSERT INTO redrive_payloads (job_id, payload)
SELECT job.id, :payload
FROM redrive_sequences AS sequence
JOIN redrive_jobs AS job ON job.id = sequence.value + 1
WHERE sequence.name = 'job'
