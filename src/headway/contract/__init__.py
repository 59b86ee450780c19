"""The contract of a store: the protocol, its requests and its replies."""
