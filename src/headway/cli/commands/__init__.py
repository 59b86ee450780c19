"""The commands, by subject; `headway.cli.main` lists them."""
