-- Write that deliveries of events have ended, if the lease of their feeder is current, and return those that had not.
-- Called by the transaction of a handler, and by turn for failed events; it locks the job, so that no sweep ends the lease.
INSERT INTO redrive_done (topic, subscription, event_id, epoch)
SELECT :topic, :subscription, given.value, :epoch FROM json_each(:ids) AS given
WHERE EXISTS (SELECT 1 FROM redrive_jobs WHERE id = :job_id AND lease_id = :lease_id AND state = 'running')
ON CONFLICT (topic, subscription, event_id) DO UPDATE SET epoch = excluded.epoch
    WHERE redrive_done.epoch <> excluded.epoch
RETURNING event_id
