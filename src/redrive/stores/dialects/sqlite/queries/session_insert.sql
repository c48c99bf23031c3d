-- Insert a session.
-- Called by begin.
INSERT INTO redrive_sessions (digest, name, account, expires_at)
VALUES (:digest, :name, :account, :expires_at)
