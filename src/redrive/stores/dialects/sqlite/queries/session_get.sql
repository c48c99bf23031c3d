-- Return a session that has not expired.
-- Called by find.
SELECT name, account FROM redrive_sessions WHERE digest = :digest AND expires_at > coalesce(:now, (SELECT now FROM redrive_clock))
