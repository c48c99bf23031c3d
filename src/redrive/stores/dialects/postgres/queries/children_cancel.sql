-- Request the cancellation of the runs that these runs have called, and whose calls have ended.
-- Called by drop_calls. It locks no job, so that it waits for no transaction that has locked the job of a called run.
UPDATE redrive_runs AS run SET
    cancel_at = :now::timestamptz,
    cancel_why = (
        SELECT 'its call in ' || workflow || ' ' || id || ' (' || run.parent_path || ') was dropped: ' || :why::text
        FROM redrive_runs WHERE job_id = run.parent_id
    ),
    paused_at = NULL, paused_until = NULL, paused_why = NULL
-- They are locked in the order of their jobs, and the search for them is planned by itself.
WHERE run.job_id = ANY (ARRAY(
        SELECT job_id FROM redrive_runs
        WHERE job_id = ANY (ARRAY(
            SELECT child.job_id FROM unnest(:ids::bigint[]) AS caller (id)
            CROSS JOIN LATERAL (
                SELECT job_id, parent_path FROM redrive_runs WHERE parent_id = caller.id AND cancel_at IS NULL OFFSET 0
            ) AS child
            WHERE caller.id || ':' || child.parent_path <> ALL (:open::text[])
                AND EXISTS (
                    SELECT FROM redrive_jobs
                    WHERE id = child.job_id AND state IN ('ready', 'running', 'waiting')
                    OFFSET 0
                )
        ))
        ORDER BY job_id
        FOR UPDATE
    ))
    AND run.cancel_at IS NULL
