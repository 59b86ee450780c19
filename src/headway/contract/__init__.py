"""What a store promises: the protocol, its requests and its replies."""
