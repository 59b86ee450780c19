"""Bridges: other distributed systems at the edges of the engine. Off unless configured."""
