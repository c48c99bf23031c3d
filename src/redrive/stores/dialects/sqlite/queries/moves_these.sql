-- Return events by their ids.
-- Called by settle and by the actions of operators on failed transitions.
SELECT
-- include move_columns.sql
FROM redrive_moves
WHERE id IN (SELECT value FROM json_each(:ids))
