"""Damaged and hostile input for every reader of files and for the operators: `make fuzz MINUTES=n`."""
