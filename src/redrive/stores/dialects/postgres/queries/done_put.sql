-- Write that deliveries of events have ended, if the lease of their feeder is current, and return those that had not.
-- Called by the transaction of a handler, and by turn for failed events; it locks the job, so that no sweep ends the lease.
WITH feeder AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint AND state <> 'waiting'
    FOR SHARE
)
INSERT INTO redrive_done AS done (topic, subscription, event_id, epoch)
SELECT :topic::text, :subscription::text, given.id, :epoch::bigint
FROM unnest(:ids::bigint[]) AS given (id) CROSS JOIN feeder
ON CONFLICT (topic, subscription, event_id) DO UPDATE SET epoch = excluded.epoch WHERE done.epoch <> excluded.epoch
RETURNING event_id
