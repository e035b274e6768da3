"""One module per sub-command of `calirare`; `calirare.cli` puts them together."""
