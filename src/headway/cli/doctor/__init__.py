"""What `headway doctor` looks at, one subject a file."""
