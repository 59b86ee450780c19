"""The routes of this system, one resource a file."""
