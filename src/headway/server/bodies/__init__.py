"""What requests may say; each body is checked before anything is done."""
