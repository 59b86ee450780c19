"""Models of request bodies, which are validated before anything is done."""
