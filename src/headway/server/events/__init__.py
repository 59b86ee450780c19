"""Events: snapshots of what changed, for whoever watches."""
