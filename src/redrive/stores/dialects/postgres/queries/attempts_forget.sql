-- Delete the history entries of jobs up to a number of an attempt.
-- Called by settle, sweep and complete, for catch jobs with a long history.
DELETE FROM redrive_attempts WHERE ctid = ANY (ARRAY(
    SELECT old.place
    FROM unnest(:job_id::bigint[], :number::integer[]) AS given (job_id, number)
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM redrive_attempts WHERE job_id = given.job_id AND number <= given.number OFFSET 0
    ) AS old
))
