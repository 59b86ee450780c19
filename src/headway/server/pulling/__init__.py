"""Long polls."""
