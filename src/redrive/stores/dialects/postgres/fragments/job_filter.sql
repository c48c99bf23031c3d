    -- The conditions of a filter, of redrive_jobs AS job.
    (:state::text IS NULL OR state = :state)
    AND (:hold::text IS NULL OR hold = :hold)
    AND (:task::text IS NULL OR task = :task)
    AND (:queue::text IS NULL OR queue = :queue)
    AND (:reason::text IS NULL OR reason = :reason)
    AND (:error::text IS NULL OR strpos(error, :error) > 0)
    AND (:group::text IS NULL OR fingerprint = :group)
    AND (:caught::boolean IS NULL OR (caught_at IS NOT NULL) = :caught)
    AND (:tag::text IS NULL OR EXISTS (SELECT FROM redrive_tags AS mark WHERE mark.tag = :tag AND mark.job_id = job.id))
    AND (:refreshes::boolean OR state <> 'dead' OR origin IS NULL OR origin NOT LIKE 'refresh:%')
    AND (:finished_before::timestamptz IS NULL OR finished_at < :finished_before)
    AND id > :after_id::bigint
    AND id < :before_id::bigint
