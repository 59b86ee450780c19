"""The directory: what systems keep besides jobs, such as numbers and technicians, in SQL.

One database serves all systems of an installation; each has tables and migrations of its own.
"""
