"""Where the server listens, and how its connections are kept small."""
