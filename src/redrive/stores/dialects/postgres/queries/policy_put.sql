-- Insert the texts of policies under their digests, unless there is a row that is not retired.
-- Called by enqueue and repolicy; it waits for no other transaction, and may insert a second row on PostgreSQL.
INSERT INTO redrive_policies (digest, document)
SELECT digest, document
FROM unnest(:digest::text[], :document::text[]) AS given (digest, document)
WHERE NOT EXISTS (
    SELECT FROM redrive_policies AS known WHERE known.digest = given.digest AND known.retired_at IS NULL
)
