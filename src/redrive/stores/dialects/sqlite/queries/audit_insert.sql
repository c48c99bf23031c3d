-- Insert an entry of the audit log.
-- Called by every operation by which an operator changes something.
INSERT INTO redrive_audit (at, actor, action, details, operation_id) VALUES (:at, :actor, :action, :details, :operation_id)
