"""The dispenserd drop-in: the API of the job queue of that name, on a store that keeps its jobs.

Source: the readme and the behaviour of dispenserd 0.0.3 (realtux/dispenserd).
"""
