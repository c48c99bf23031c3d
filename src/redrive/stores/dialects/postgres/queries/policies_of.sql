-- Answers the policies that jobs of a stride have.
-- Called by survey, to find out which ones nobody has.
SELECT DISTINCT policy FROM redrive_jobs WHERE id > :after_id::bigint AND id <= :until::bigint
