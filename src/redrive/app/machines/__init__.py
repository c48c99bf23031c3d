"""State machines: the declared class, its states and instances, what people do with stuck ones, its drawing."""
