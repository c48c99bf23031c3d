"""The folder that Django looks for."""
