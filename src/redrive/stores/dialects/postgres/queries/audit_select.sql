-- Return entries of the audit log, newest first.
-- Called by audit.
SELECT id, at, actor, action, details
FROM redrive_audit
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :count::bigint
