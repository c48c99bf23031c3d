    -- The conditions of a filter, of redrive_jobs.
    (:state IS NULL OR state = :state)
    AND (:hold IS NULL OR hold = :hold)
    AND (:task IS NULL OR task = :task)
    AND (:queue IS NULL OR queue = :queue)
    AND (:reason IS NULL OR reason = :reason)
    AND (:error IS NULL OR instr(error, :error) > 0)
    AND (:group IS NULL OR fingerprint = :group)
    AND (:caught IS NULL OR (caught_at IS NOT NULL) = :caught)
    AND (
        :tag IS NULL
        OR EXISTS (SELECT 1 FROM redrive_tags AS mark WHERE mark.tag = :tag AND mark.job_id = redrive_jobs.id)
    )
    AND (:refreshes OR state <> 'dead' OR origin IS NULL OR origin NOT LIKE 'refresh:%')
    AND (:finished_before IS NULL OR finished_at < :finished_before)
    AND id > :after_id
    AND id < :before_id
