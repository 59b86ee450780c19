"""The client: everything that a program does with Headway, done over HTTP."""
