"""An app of Django for the tests: what a small shop has."""
