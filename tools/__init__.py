"""The `smelt` command: one file for each subcommand."""
