-- Return the latest decided occurrence of each cron that has one.
-- Called by latest; one index probe for each schedule.
SELECT found.schedule, found.occurs_at, found.decided_at, found.decision, found.job_id, found.note
FROM redrive_schedules AS known
INNER JOIN redrive_occurrences AS found ON found.schedule = known.name
    AND found.occurs_at = (SELECT max(occurs_at) FROM redrive_occurrences WHERE schedule = known.name)
ORDER BY found.schedule
