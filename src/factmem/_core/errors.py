"""Errors that the user can fix. Each message is one sentence."""

__all__ = [
    "ArgumentError",
    "FactTableError",
    "FactmemError",
    "StoreError",
    "TensorFileError",
    "printable",
]


class FactmemError(ValueError):
    """Invalid input; the message says what is wrong and what is allowed."""


class ArgumentError(FactmemError):
    """An invalid argument that a user may have given by a flag, which the command line then names.

    Args:
        argument: its name, such as `head_dim`.
        problem: the rest of the sentence, such as `must be at least 1, got 0`.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument, self.problem = argument, problem

    def __str__(self) -> str:
        return f"{self.argument} {self.problem}"


class FactTableError(FactmemError):
    """A fact table that is inconsistent, incomplete or unreadable."""


class StoreError(FactmemError):
    """A run store that is damaged, not written by factmem, of another version, or not writable."""


class TensorFileError(FactmemError):
    """A tensor file that is damaged, not from factmem, of the wrong shape, or not finite."""


def printable(text: str, limit: int = 60) -> str:
    """Return the text as one printable line: control characters escaped, long text shortened.

    Names come from users and may contain anything, including line ends and terminal escape codes.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
