-- Write that the instances of waiting events show them.
-- Called by take_turns.
UPDATE redrive_moves SET noted = true WHERE id = ANY (:ids::bigint[])
