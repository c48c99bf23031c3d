-- Answers the digests of all policies.
-- Called by policies.
SELECT digest FROM redrive_policies
