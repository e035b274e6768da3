"""`python -m calirare` is the command line."""

from calirare.cli import main

main()
