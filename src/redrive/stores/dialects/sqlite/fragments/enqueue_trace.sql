INSERT INTO redrive_traces (job_id, trace)
SELECT job.id, :trace
FROM redrive_sequences AS sequence
JOIN redrive_jobs AS job ON job.id = sequence.value + 1
WHERE sequence.name = 'job' AND :trace IS NOT NULL
