-- Mark signals as received by these steps.
-- Called by settle for the waits that have ended.
UPDATE redrive_signals AS signal SET path = given.path, pending = false
FROM unnest(:id::bigint[], :run_id::bigint[], :path::text[]) AS given (id, run_id, path)
WHERE signal.id = ANY (:id) AND signal.run_id = ANY (:run_id)
    AND signal.id = given.id AND signal.run_id = given.run_id AND signal.path IS NULL
