-- Return the smallest id of a job above a given one, and the largest id; NULL if there is none.
-- Called by survey, which leaves out ids of deleted jobs, and needs to find where to stop.
SELECT
    (SELECT min(id) FROM redrive_jobs WHERE id > :after_id) AS first,
    (SELECT max(id) FROM redrive_jobs) AS last
