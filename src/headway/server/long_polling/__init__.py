"""Long polls: claims that wait for jobs."""
