-- End a running operation, after the batch under way.
-- Called by stop and undo.
UPDATE redrive_operations SET state = 'stopped', ended_at = :now WHERE id = :id AND state = 'running' RETURNING id
