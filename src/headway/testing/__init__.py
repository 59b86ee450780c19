"""For users and store authors: a fake clock, a job factory, a faulty store, the conformance suite.

`headway.testing.conformance` needs pytest and pytest-asyncio; the other modules need no further
packages.
"""
