-- Delete a session.
-- Called by end.
DELETE FROM redrive_sessions WHERE digest = :digest
