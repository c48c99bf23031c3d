-- The statements of operations/audit.py.

-- name: audit_insert
-- Insert an entry of the audit log.
-- For each change by an operator.
-- both
INSERT INTO redrive_audit (at, actor, action, details, operation_id, about)
VALUES (:at::timestamptz, :actor::text, :action::text, :details::text, :operation_id::bigint, :about::text)

-- name: audit_select
-- Return entries of the audit log, newest first.
-- both
SELECT id, at, actor, action, details
FROM redrive_audit
WHERE :before_id::bigint IS NULL OR id < :before_id
ORDER BY id DESC
LIMIT :count::bigint

-- name: audit_about
-- Return the entries of the audit log about one thing, newest first.
-- both
SELECT id, at, actor, action, details
FROM redrive_audit
WHERE about = :about::text AND id < :before_id::bigint
ORDER BY id DESC
LIMIT :count::bigint
