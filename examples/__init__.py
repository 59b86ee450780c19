"""Programs that show Headway at work; run them from the project's root."""
