"""What recurs: crons and refreshes as they are declared, and the schedules and items of the database."""
