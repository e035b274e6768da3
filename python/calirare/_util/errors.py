"""The errors a user meets, beside Python's own."""


class InputError(ValueError):
    """What the user gave cannot be used: a file, a graph, labels or a setting.

    The message is one sentence: what, where, what was expected and how to mend it.
    """


class NotConvergedError(RuntimeError):
    """An iterative computation stopped before it reached its tolerance; the message carries the numbers."""
