"""The client: everything that a program does with Headway, over HTTP."""
