-- Answers a row if a job has this policy, or may get it: somebody may have seen it before it was deleted.
-- Called by forget_policy when it is deleted already; whoever has put a policy, or seen it, holds a lock on the table.
SELECT 1
WHERE EXISTS (
        SELECT FROM pg_catalog.pg_locks AS lock
        WHERE lock.relation = 'redrive_policies'::regclass
            AND lock.mode = 'RowExclusiveLock'
            AND lock.pid <> pg_backend_pid()
    )
    OR EXISTS (SELECT FROM redrive_jobs WHERE policy = :digest::text)
