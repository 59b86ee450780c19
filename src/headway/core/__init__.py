"""The rules of dispatch, pure: no I/O, no clock, no randomness."""
