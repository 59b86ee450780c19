"""The dashboard's pages of the engine, one a file."""
