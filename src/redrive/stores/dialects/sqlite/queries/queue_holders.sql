-- Answers which attempts take up the places of a limited queue, oldest first.
-- Called by the list of queues, and to say why a job is not running.
SELECT id, partition
FROM redrive_jobs
WHERE slot = :queue
ORDER BY id
LIMIT :count
