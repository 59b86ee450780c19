"""The conformance suite: what every store promises, told as tests.

The author of a store writes one class:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self) -> MakeStore:
            return lambda clock: MyStore(clock=clock)

pytest and pytest-asyncio run it. docs/how-to/write-a-store.md has the whole story.
"""
