"""What is seen of service requests from outside: counts and metrics."""
