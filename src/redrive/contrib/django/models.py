"""An empty module: Django signals ``migrate`` only to apps with models, and redrive migrates its own tables."""
