"""Workflows: the declared function, the calls that a body makes, the handle of a run, its history and its steps."""
