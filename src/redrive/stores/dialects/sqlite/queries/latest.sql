-- Return the largest ids of the rows that show a change to open pages, and the number of workers that have not left.
-- Called by latest.
SELECT
    coalesce((SELECT max(id) FROM redrive_audit), 0) AS audit,
    coalesce((SELECT max(id) FROM redrive_signals), 0) AS signals,
    coalesce((SELECT max(id) FROM redrive_moves), 0) AS moves,
    coalesce((SELECT max(id) FROM redrive_events), 0) AS events,
    coalesce((SELECT max(id) FROM redrive_workers WHERE stopped_at IS NULL), 0) AS worker,
    (SELECT count(*) FROM redrive_workers WHERE stopped_at IS NULL) AS workers
