-- Writes a line of the audit log.
-- Called by every operation by which a person changes something.
INSERT INTO redrive_audit (at, actor, action, details) VALUES (:at, :actor, :action, :details)
