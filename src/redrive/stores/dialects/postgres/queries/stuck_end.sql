-- End the sessions of processes that stopped in the middle of a statement of redrive, and so keep rows locked.
-- Called by end_stuck. To the server such a session is active, so its timeout for idle transactions does not end it.
-- transaction: none
SELECT activity.pid, pg_terminate_backend(activity.pid)
FROM pg_stat_activity AS activity
-- The time is that of the server, as in state_change.
WHERE activity.datname = current_database() AND activity.usename = current_user
    AND activity.state = 'active' AND activity.wait_event = 'ClientRead'
    AND activity.xact_start IS NOT NULL AND activity.state_change <= clock_timestamp() - :silent_for::interval
    -- A statement of this schema as the drivers write it: sessions of other programs are left alone.
    AND position((
        SELECT format('"%s".redrive_', space.nspname)
        FROM pg_class AS ours JOIN pg_namespace AS space ON space.oid = ours.relnamespace
        WHERE ours.oid = 'redrive_jobs'::regclass
    ) IN activity.query) > 0
