"""Errors that are the caller's to mend, each a single sentence."""

__all__ = ["FactTableError", "FactmemError", "StoreError", "TensorFileError", "visible"]


class FactmemError(ValueError):
    """What was asked for cannot be done; the message says why, and what would be right."""


class FactTableError(FactmemError):
    """A table of facts that contradicts itself, lacks something or cannot be read."""


class StoreError(FactmemError):
    """A store of runs that is damaged, foreign, of another version, or cannot be written."""


class TensorFileError(FactmemError):
    """A file of tensors that is damaged, foreign, misshapen or not finite throughout."""


def visible(text: str, limit: int = 60) -> str:
    """Text as one printable line: control characters as escapes, long text cut.

    Names come from users and may hold anything, a terminal's escape codes and line ends included.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
