-- Delete expired sessions, at most as many as given.
-- Called by begin.
DELETE FROM redrive_sessions
WHERE digest IN (SELECT digest FROM redrive_sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT :count)
