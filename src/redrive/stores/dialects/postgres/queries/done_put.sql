-- Write that events are done, if the lease of their feeder is current, and return their ids.
-- Called by the transaction of a handler. The row of the job is locked, so that no sweep ends the lease before the commit.
WITH feeder AS MATERIALIZED (
    SELECT id FROM redrive_jobs
    -- As in settle_succeeded: the planner must not use the index of running jobs.
    WHERE id = :job_id::bigint AND lease_id = :lease_id::bigint AND state <> 'waiting'
    FOR SHARE
)
INSERT INTO redrive_done (topic, subscription, event_id)
SELECT :topic::text, :subscription::text, given.id FROM unnest(:ids::bigint[]) AS given (id) CROSS JOIN feeder
ON CONFLICT (topic, subscription, event_id) DO UPDATE SET event_id = excluded.event_id
RETURNING event_id
