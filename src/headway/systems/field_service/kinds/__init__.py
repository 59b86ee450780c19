"""The kinds of this system: a file for each, and one that declares them all."""
