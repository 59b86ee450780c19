"""Long polls: claims that wait."""
