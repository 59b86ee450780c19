"""The directory: SQL records that systems keep besides jobs, such as numbers and technicians.

One database serves all systems of an installation; each has its own tables and migrations.
"""
