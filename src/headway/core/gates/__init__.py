"""Gates: the limits that a job must pass to start."""
