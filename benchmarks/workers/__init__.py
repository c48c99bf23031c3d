"""What one command line flag or one more worker process changes: concurrency, many workers, idle workers."""
