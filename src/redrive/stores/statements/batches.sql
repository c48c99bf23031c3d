-- The statements of operations/batches.py.

-- name: batch_leave
-- Delete the tag of a batch from jobs that have ended.
-- Under the lock of the job that follows the batch.
-- both
DELETE FROM redrive_tags WHERE tag = :tag::text AND job_id = ANY (:ids::bigint[])

-- name: batch_end
-- Make the job due that follows a batch, if no job of it has the tag any more and it still waits for that.
-- Under its lock; in a statement after the deletion, so that it sees those of other transactions. Jobs of other origins
-- may have a tag of the user with the same text.
-- both
UPDATE redrive_jobs SET hold = NULL, scheduled_at = :now::timestamptz
WHERE id = :id::bigint AND state = 'ready' AND hold = 'batch'
    AND NOT EXISTS (
        SELECT 1 FROM redrive_tags AS mark
        WHERE mark.tag = :tag::text
            AND (SELECT member.origin FROM redrive_jobs AS member WHERE member.id = mark.job_id) = :origin::text
    )

-- name: batch_wait
-- Let jobs wait for their batches again that this transaction has started again.
-- both
UPDATE redrive_jobs SET hold = 'batch' WHERE id = ANY (:ids::bigint[])
