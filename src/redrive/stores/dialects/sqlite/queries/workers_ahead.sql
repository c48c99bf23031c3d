-- Return the leases of those of these workers that have more jobs than slots, in order, each with the number of slots.
-- Called by circumstances. A feeder needs no slot.
SELECT worker.id, worker.concurrency, job.lease_id
FROM redrive_workers AS worker
JOIN redrive_jobs AS job ON job.worker_id = worker.id AND job.state = 'running'
WHERE worker.id IN (SELECT value FROM json_each(:ids))
    AND (job.origin IS NULL OR job.origin NOT LIKE 'topic:%@%' OR job.origin LIKE '%#%')
    AND worker.concurrency < (
        SELECT count(*) FROM redrive_jobs AS each WHERE each.worker_id = worker.id AND each.state = 'running'
    )
ORDER BY worker.id, job.lease_id
