"""For users and store authors: a fake clock, a job factory, a faulty store, the conformance suite.

Nothing here is needed to dispatch. `headway.testing.conformance` needs pytest and pytest-asyncio;
the other modules need nothing beside the package.
"""
