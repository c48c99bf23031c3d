"""Topics: the declared topic, its subscriptions, what people do with them, and how that is put into words."""
