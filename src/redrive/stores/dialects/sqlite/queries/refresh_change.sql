-- Write the arguments and the policies of items.
-- Called by track for items that are tracked already.
UPDATE redrive_refreshes SET payload = :payload, own = :own WHERE schedule = :schedule AND key = :key
