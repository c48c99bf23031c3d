"""No models: redrive makes its own tables. Django tells of migrations only those apps that have this module."""
