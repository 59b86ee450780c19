"""Users: who is told things, by which roles."""
