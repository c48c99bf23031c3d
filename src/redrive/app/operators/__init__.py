"""What people do with many jobs at once, and with the database: the parts of an App for its operators."""
