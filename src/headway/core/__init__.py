"""The rules of dispatch as pure functions: no I/O, no clock, no randomness."""
