-- Write an error into the rows of calls of runs that are not open any more, and take it out of the open ones.
-- Called by drop_calls. Open calls are given as job of the caller, colon and path.
UPDATE redrive_steps AS step SET
    error = CASE
        WHEN step.run_id || ':' || step.path = ANY (:open::text[]) THEN NULL
        ELSE json_build_object(
            'types', '[]'::json,
            'message', 'the call of '
                || coalesce((SELECT workflow || ' ' || id FROM redrive_runs WHERE job_id = step.ref), step.name)
                || ' was dropped: ' || :why::text,
            'reason', 'CANCELLED'
        )::text
    END
WHERE step.run_id = ANY (:ids::bigint[])
    -- A run without children so reads none of its steps.
    AND step.path = ANY (ARRAY(
        SELECT child.parent_path FROM unnest(:ids) AS caller (id)
        CROSS JOIN LATERAL (SELECT parent_path FROM redrive_runs WHERE parent_id = caller.id OFFSET 0) AS child
    ))
    AND step.outcome = 'waiting' AND step.kind = 'call'
    AND (step.error IS NULL) <> (step.run_id || ':' || step.path = ANY (:open))
