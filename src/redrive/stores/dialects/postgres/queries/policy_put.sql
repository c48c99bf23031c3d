-- Keeps the texts of policies under their digests; one that has a row that is not retired gets no other one.
-- Called by enqueue and repolicy; inserts what it does not see, and waits for no other transaction.
INSERT INTO redrive_policies (digest, document)
SELECT digest, document
FROM unnest(:digest::text[], :document::text[]) AS given (digest, document)
WHERE NOT EXISTS (
    SELECT FROM redrive_policies AS known WHERE known.digest = given.digest AND known.retired_at IS NULL
)
