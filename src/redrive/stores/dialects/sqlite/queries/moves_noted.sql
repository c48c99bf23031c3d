-- Write that the instances of waiting events show them.
-- Called by take_turns.
UPDATE redrive_moves SET noted = 1 WHERE id IN (SELECT value FROM json_each(:ids))
