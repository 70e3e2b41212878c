"""`python -m sterna` is the `sterna` command."""

from sterna.cli.main import main

if __name__ == "__main__":
    main()
