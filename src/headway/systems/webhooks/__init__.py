"""Results of leads, told to their callers' webhooks."""
