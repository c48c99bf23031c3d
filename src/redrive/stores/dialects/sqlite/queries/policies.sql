-- Return the digests of the policies that are not retired, and of those that were retired before this instant.
-- Called by policies.
SELECT digest FROM redrive_policies WHERE retired_at IS NULL OR retired_at <= :before
