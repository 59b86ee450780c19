"""The Redis store: one script a verb, all keys of a namespace in one hash slot."""
