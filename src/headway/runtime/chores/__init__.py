"""Chores that need no leader: any number of workers may do them at once."""
