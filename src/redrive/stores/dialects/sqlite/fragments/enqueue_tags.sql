INSERT INTO redrive_tags (tag, job_id)
SELECT tag.value, job.id
FROM redrive_sequences AS sequence
JOIN redrive_jobs AS job ON job.id = sequence.value + 1
CROSS JOIN json_each(:tags) AS tag
WHERE sequence.name = 'job'
