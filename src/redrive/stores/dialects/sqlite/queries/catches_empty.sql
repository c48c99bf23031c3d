-- Delete all catch jobs; Turso refuses to delete the jobs that they catch in the same statement.
-- Called by empty.
DELETE FROM redrive_jobs WHERE parent_id IS NOT NULL
