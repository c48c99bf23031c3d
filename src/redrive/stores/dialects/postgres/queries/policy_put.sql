-- Keeps the texts of policies under their digests, each once.
-- Called by enqueue; in one order, so that two of them never wait for each other, and without looking first: who meets a policy that is just being deleted waits, and inserts it anew.
INSERT INTO redrive_policies (digest, document)
SELECT digest, document
FROM unnest(:digest::text[], :document::text[]) AS given (digest, document)
ORDER BY digest
ON CONFLICT DO NOTHING
