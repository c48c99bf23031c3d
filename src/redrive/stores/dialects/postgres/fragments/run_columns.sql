    -- The fields of a run, of redrive_runs AS run and redrive_jobs AS job.
    run.job_id, run.workflow, run.id, run.version, run.digest, run.parent_id, run.parent_path, run.epoch, run.paused_at,
    run.paused_until, run.paused_why, run.cancel_at, run.cancel_why, run.forked_from, run.set_values AS "values",
    CASE WHEN job.hold = 'held' THEN job.note END AS held,
    CASE WHEN job.hold = 'held' THEN job.unreadable_at END AS held_at
