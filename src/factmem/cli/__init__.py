"""The command line: a thin shell over the package. Importing it loads no jax."""

from factmem.cli.app import main, run

__all__ = ["main", "run"]
