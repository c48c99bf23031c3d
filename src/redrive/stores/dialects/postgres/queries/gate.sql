-- Take ids for jobs; return their blocks, the instant, and one of these queues that is ordered, if there is one.
-- Called by enqueue, with the queues of the jobs that have no partition.
-- transaction: none
WITH taken AS MATERIALIZED (
    SELECT min(number) AS first, max(number) AS last, array_agg(number) AS numbers
    FROM (SELECT nextval('redrive_job_ids') AS number FROM generate_series(1, :count::bigint)) AS single
)
SELECT
    coalesce(:now::timestamptz, clock.now) AS now,
    (SELECT min(name) FROM redrive_queues WHERE name = ANY (:queues::text[]) AND ordered) AS ordered,
    block.first,
    block.last
FROM redrive_clock AS clock
CROSS JOIN taken
CROSS JOIN LATERAL (
    SELECT taken.first, taken.last WHERE taken.last - taken.first + 1 = :count
    UNION ALL
    SELECT number, number FROM unnest(taken.numbers) AS number WHERE taken.last - taken.first + 1 <> :count
) AS block
