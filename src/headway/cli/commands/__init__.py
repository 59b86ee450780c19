"""The commands, one a file; `headway.cli.catalogue` lists them."""
