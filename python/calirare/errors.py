"""The errors a user meets, beside Python's own."""


class InputError(ValueError):
    """What the user gave cannot be used: a file, a graph, labels, a setting. One sentence says what, where and how to mend it."""


class NotConvergedError(RuntimeError):
    """An iterative computation stopped before it reached its tolerance; the message carries the numbers."""
