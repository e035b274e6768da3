"""`python -m calirare` is the command line."""

from calirare.cli import main

if __name__ == "__main__":
    main()
