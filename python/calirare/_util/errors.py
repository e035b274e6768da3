"""The errors a user meets, beside Python's own."""

LONGEST = 600  # characters of a message: what is quoted from a file can be of any length


class InputError(ValueError):
    """What the user gave cannot be used: a file, a graph, labels or a setting.

    The message is one sentence: what, where, what was expected and how to mend it. What is quoted in it cannot break
    a line or drive a terminal, and cannot make it longer than `LONGEST`.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class NotConvergedError(RuntimeError):
    """An iterative computation stopped before it reached its tolerance; the message carries the numbers."""


def one_line(message: str) -> str:
    """Returns a message with control characters escaped and, where it is too long, its middle left out."""
    if len(message) > LONGEST:
        head, tail = 2 * LONGEST // 3, LONGEST // 6
        left_out = len(message) - head - tail
        message = f"{message[:head]} [.. {left_out:,} characters ..] {message[-tail:]}"
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message)
