"""A calendar in Cassandra: jobs that are due far ahead lie there until shortly before their time.

`Calendar` writes, finds and moves them; `Reader` is the leader's part, which reads ahead.
"""
