-- Keeps the text of a policy under its digest, once.
-- Called by enqueue.
INSERT INTO redrive_policies (digest, document) VALUES (:digest, :document) ON CONFLICT DO NOTHING
