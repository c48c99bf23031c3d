-- Request the cancellation of runs, and let paused ones go on to receive it.
-- Called by cancel; an earlier request keeps its time and its reason.
UPDATE redrive_runs SET
    cancel_at = coalesce(cancel_at, :now::timestamptz), cancel_why = coalesce(cancel_why, :why::text),
    paused_at = NULL, paused_until = NULL, paused_why = NULL
WHERE job_id = ANY (:ids::bigint[])
