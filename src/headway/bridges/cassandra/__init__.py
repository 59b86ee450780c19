"""A calendar in Cassandra, which keeps jobs due far ahead until shortly before they are due.

`Calendar` writes, finds and moves jobs; `Reader` runs on the leader and reads ahead.
"""
