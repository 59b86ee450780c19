"""The Redis store: one script per verb, and all keys of a namespace in one hash slot."""
