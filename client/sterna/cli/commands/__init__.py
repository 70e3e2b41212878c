"""One module a command: its options, its help, and what it does with the SDK or the admin client."""
