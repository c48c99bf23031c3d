"""What the distance to PostgreSQL costs."""
