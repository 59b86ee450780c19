"""What is remembered of alerts, in the directory."""
