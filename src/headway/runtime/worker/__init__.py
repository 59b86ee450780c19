"""A worker: claims jobs, runs their handlers, keeps their leases, and settles them."""
