-- Write that events are done, if the lease of their feeder is current, and return their ids.
-- Called by the transaction of a handler. The row of the job is locked, so that no sweep ends the lease before the commit.
INSERT INTO redrive_done (topic, subscription, event_id)
SELECT :topic, :subscription, given.value FROM json_each(:ids) AS given
WHERE EXISTS (SELECT 1 FROM redrive_jobs WHERE id = :job_id AND lease_id = :lease_id AND state = 'running')
ON CONFLICT (topic, subscription, event_id) DO UPDATE SET event_id = excluded.event_id
RETURNING event_id
