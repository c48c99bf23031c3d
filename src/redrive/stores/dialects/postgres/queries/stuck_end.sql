-- Ends the sessions of processes that stopped in the middle of a statement of ours, and so keep what they have locked.
-- Called by the rescuer. To the server such a session is active, so its timeout for idle transactions spares it.
SELECT activity.pid, pg_terminate_backend(activity.pid)
FROM pg_stat_activity AS activity
-- The clock is the server's own, as that of state_change is.
WHERE activity.datname = current_database() AND activity.usename = current_user
    AND activity.state = 'active' AND activity.wait_event = 'ClientRead'
    AND activity.xact_start IS NOT NULL AND activity.state_change <= clock_timestamp() - :silent_for::interval
    -- A statement of this schema as the drivers write it: nobody else's sessions are touched.
    AND position((
        SELECT format('"%s".redrive_', space.nspname)
        FROM pg_class AS ours JOIN pg_namespace AS space ON space.oid = ours.relnamespace
        WHERE ours.oid = 'redrive_jobs'::regclass
    ) IN activity.query) > 0
