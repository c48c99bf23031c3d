-- The statements of operations/sessions.py.

-- name: sessions_forget
-- Delete expired sessions, at most as many as given.
-- postgres
DELETE FROM redrive_sessions
WHERE digest = ANY (ARRAY(
    SELECT digest FROM redrive_sessions WHERE expires_at <= :now::timestamptz ORDER BY expires_at LIMIT :count::bigint
))
-- sqlite
DELETE FROM redrive_sessions
WHERE digest IN (SELECT digest FROM redrive_sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT :count)

-- name: session_insert
-- Insert a session.
-- both
INSERT INTO redrive_sessions (digest, name, account, expires_at)
VALUES (:digest::text, :name::text, :account::text, :expires_at::timestamptz)

-- name: session_get
-- Return a session that has not expired.
-- both
SELECT name, account FROM redrive_sessions
WHERE digest = :digest::text AND expires_at > coalesce(:now::timestamptz, (SELECT now FROM redrive_clock))

-- name: session_delete
-- Delete a session.
-- both
DELETE FROM redrive_sessions WHERE digest = :digest::text
