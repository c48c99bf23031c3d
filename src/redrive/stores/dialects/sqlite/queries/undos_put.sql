-- Write rows about the undos of runs that no worker executes, each unless it is recorded as ended.
-- Called by cancel.
-- many: rows
INSERT INTO redrive_steps (run_id, path, kind, name, outcome, lease_id, at, took, tries, due_at, error)
VALUES (:run_id, :path, :kind, :name, :outcome, 0, :now, :took, :tries, :due_at, :error)
ON CONFLICT (run_id, path) DO UPDATE SET
    outcome = excluded.outcome,
    at = excluded.at,
    due_at = excluded.due_at,
    error = excluded.error
WHERE redrive_steps.outcome = 'waiting'
