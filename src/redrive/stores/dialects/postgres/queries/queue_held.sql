-- Answers how many attempts of one limited queue run, partition by partition.
-- Called by claim under the lock of the queue, and to say why a job is not running.
SELECT partition, count(*) AS held
FROM redrive_jobs
WHERE slot = :queue
GROUP BY partition
