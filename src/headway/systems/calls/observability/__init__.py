"""What is seen of calls from outside: counts, alerts and metrics."""
