-- The statements of operations/requests.py.

-- name: requests_forget
-- Delete keys that are too old, at most as many as given.
-- postgres
DELETE FROM redrive_requests
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM redrive_requests WHERE begun_at <= :before::timestamptz ORDER BY begun_at LIMIT :count::bigint
))
-- sqlite
DELETE FROM redrive_requests
WHERE (actor, key) IN (
    SELECT actor, key FROM redrive_requests WHERE begun_at <= :before ORDER BY begun_at LIMIT :count
)

-- name: request_insert
-- Insert the key of a request, or replace one that is too old, and return the key; nothing if it is taken.
-- both
INSERT INTO redrive_requests (actor, key, digest, begun_at, answer)
VALUES (:actor::text, :key::text, :digest::text, :now::timestamptz, NULL)
ON CONFLICT (actor, key) DO UPDATE SET digest = excluded.digest, begun_at = excluded.begun_at, answer = NULL
WHERE redrive_requests.begun_at <= :before::timestamptz
RETURNING key

-- name: request_get
-- Return a request by its key.
-- both
SELECT digest, answer FROM redrive_requests WHERE actor = :actor::text AND key = :key::text

-- name: request_answer
-- Store the answer to a request.
-- both
UPDATE redrive_requests SET answer = :answer::bytea WHERE actor = :actor::text AND key = :key::text

-- name: request_delete
-- Delete the key of a request.
-- both
DELETE FROM redrive_requests WHERE actor = :actor::text AND key = :key::text
