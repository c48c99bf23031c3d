-- Return the entries of the audit log about an operation, oldest first.
-- Called by lines, and carry_out for the operation that it takes back.
SELECT id, at, actor, action, details
FROM redrive_audit
WHERE operation_id = :operation_id::bigint AND id > :after_id::bigint
ORDER BY id
LIMIT :count::bigint
