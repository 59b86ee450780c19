"""The server: the engine over HTTP, for any language."""
