-- Delete the history entries of jobs up to a number of an attempt.
-- Called by settle, sweep and complete, for catch jobs with a long history.
DELETE FROM redrive_attempts WHERE job_id = :job_id AND number <= :number
