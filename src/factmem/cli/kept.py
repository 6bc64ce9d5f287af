"""The flag that says where runs are kept."""

from factmem._core.errors import FactmemError

__all__ = ["store_path"]


def store_path(named: str | None) -> str:
    """The file that was named, or the usual one.

    Raises:
        FactmemError: a name that no file can have.
    """
    if named is None:
        from factmem.experiments import default_store

        return str(default_store())
    if not named or "\0" in named:
        raise FactmemError("--store is the name of a file")
    return named
