-- Return the policies of the jobs of a stride.
-- Called by survey, to find the policies that no job has.
SELECT DISTINCT policy FROM redrive_jobs WHERE id > :after_id AND id <= :until
