"""Tables of predictions, read and measured."""
