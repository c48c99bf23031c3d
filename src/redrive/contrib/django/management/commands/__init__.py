"""Django's package for management commands."""
