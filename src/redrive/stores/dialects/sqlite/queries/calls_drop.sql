-- Write an error into the rows of calls of runs that are not open any more, and take it out of the open ones.
-- Called by drop_calls. Open calls are given as job of the caller, colon and path.
UPDATE redrive_steps SET
    error = CASE
        WHEN child.parent_id || ':' || child.parent_path IN (SELECT value FROM json_each(:open)) THEN NULL
        ELSE json_object(
            'types', json('[]'),
            'message', 'the call of ' || child.workflow || ' ' || child.id || ' was dropped: ' || :why,
            'reason', 'CANCELLED'
        )
    END
FROM redrive_runs AS child
WHERE child.parent_id IN (SELECT value FROM json_each(:ids)) AND redrive_steps.run_id = child.parent_id
    AND redrive_steps.path = child.parent_path AND redrive_steps.outcome = 'waiting' AND redrive_steps.kind = 'call' AND redrive_steps.ref = child.job_id
    AND (redrive_steps.error IS NULL)
        <> (child.parent_id || ':' || child.parent_path IN (SELECT value FROM json_each(:open)))
