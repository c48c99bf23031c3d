-- Return the catch jobs of a parent that is not dead, or was caught by another job.
-- Called by check.
SELECT child.id, 'job ' || child.id || ' is ' || child.state || ', but job ' || parent.id || ', which it catches, is '
    || parent.state || CASE WHEN parent.caught_at IS NULL THEN ' and was not caught' ELSE ' and was caught by another' END
    AS text, 'catches' AS rule
FROM redrive_jobs AS child
JOIN redrive_jobs AS parent ON parent.id = child.parent_id
WHERE child.id > :after_id::bigint
    AND child.id <= :until::bigint
    AND child.parent_id IS NOT NULL
    AND (
        (child.state IN ('ready', 'running', 'waiting') AND (parent.state <> 'dead' OR parent.caught_at IS NOT NULL))
        OR (child.state = 'succeeded' AND (parent.caught_at IS NULL OR parent.caught_at <> child.finished_at))
    )
LIMIT :count::bigint
