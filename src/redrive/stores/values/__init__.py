"""The representation of parameters and rows in each database, a module for each dialect."""
