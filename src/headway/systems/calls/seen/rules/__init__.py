"""The rules of calls, one a file."""
