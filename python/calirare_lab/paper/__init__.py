"""The paper's tables and figures, its own numbers, and where we go beyond: `calirare paper`."""
