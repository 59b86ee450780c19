"""The `headway` command: the composition root of the engine."""
