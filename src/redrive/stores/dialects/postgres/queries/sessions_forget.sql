-- Delete expired sessions, at most as many as given.
-- Called by begin.
DELETE FROM redrive_sessions
WHERE digest = ANY (ARRAY(
    SELECT digest FROM redrive_sessions WHERE expires_at <= :now::timestamptz ORDER BY expires_at LIMIT :count::bigint
))
