"""Options that several commands share, and checks of their values.

cyclopts turns the dataclasses into flags. The checks run before anything heavy is imported.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from factmem._core.errors import FactmemError, FactTableError, printable

if TYPE_CHECKING:
    from factmem.experiments import Workers
    from factmem.experiments.specs import PromptSpec, TableSpec
    from factmem.facts import FactTable
    from factmem.transformer import Shape, Transformer

__all__ = [
    "CheckpointOptions",
    "EvaluationOptions",
    "FactOptions",
    "RunOptions",
    "ScaleOptions",
    "ShapeOptions",
    "check_accuracy",
    "check_array_size",
    "check_file_name",
    "check_length",
    "check_output_dir",
    "check_output_file",
    "check_plot_file",
    "check_positive",
    "check_seed",
    "check_table_file",
    "check_table_sizes",
    "check_width",
    "flag",
    "read_table",
    "store_path",
]

_MAX_SEED = 2**32 - 1
_MAX_ARRAY_SIZE = 2**31
_MAX_LENGTH = 2**20


@Parameter(name="*")
@dataclass(frozen=True)
class CheckpointOptions:
    """A file from which an interrupted computation continues."""

    checkpoint: str | None = None
    """File for checkpoints: after an interruption, the same command continues where it stopped."""
    fresh: bool = False
    """Start again even if the checkpoint exists."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        if self.fresh and self.checkpoint is None:
            raise FactmemError("--fresh requires --checkpoint")
        if self.checkpoint is not None:
            check_output_file("--checkpoint", self.checkpoint)

    def prepare(self) -> bool:
        """Delete the checkpoint if `fresh`, and return whether there is one to continue from.

        Raises:
            FactmemError: the file is not a checkpoint.
        """
        from factmem._core.checkpoint import Checkpoint, is_checkpoint

        if self.checkpoint is None or not Path(self.checkpoint).exists():
            return False
        if not is_checkpoint(self.checkpoint):
            name = printable(self.checkpoint, 200)
            raise FactmemError(f"--checkpoint: '{name}' is not a factmem checkpoint")
        if self.fresh:
            Checkpoint.discard(self.checkpoint)
        return not self.fresh


@Parameter(name="*")
@dataclass(frozen=True)
class FactOptions:
    """The fact table and its prompts."""

    subjects: int | None = None
    """S, the number of subjects of a random table."""
    relations: int | None = None
    """R, the number of relations of a random table."""
    answers: int | None = None
    """D, the number of answers per relation."""
    table: str | None = None
    """Path of a CSV file (columns subject, relation, answer) to use instead of a random table."""
    noise: int | None = None
    """Number of different noise tokens (default: S + R)."""
    length: int = 32
    """T, the number of tokens in a prompt."""
    seed: int = 0
    """Seed of the table, the embeddings and the weights."""

    @property
    def min_tokens(self) -> int:
        """A lower bound on the number of embedded tokens, from the options alone."""
        answers = (self.relations or 1) * (self.answers or 1)
        return (self.subjects or 1) + (self.noise or 1) + answers

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_table_sizes(self.subjects, self.relations, self.answers, self.table)
        check_positive(noise=self.noise)
        check_length(self.length)
        check_seed(self.seed)

    def table_spec(self) -> "TableSpec":
        """Return the table: a random one, or that of a file.

        Raises:
            FactTableError: the file does not exist.
        """
        from factmem.experiments.specs import TableSpec

        if self.table is not None:
            check_table_file(self.table, "--table")
            return TableSpec.csv(self.table)
        sizes: Any = (self.subjects, self.relations, self.answers)
        return TableSpec.random(*sizes)

    def prompt_spec(self) -> "PromptSpec":
        """Return the noise and the length of prompts."""
        from factmem.experiments.specs import PromptSpec

        return PromptSpec(noise=self.noise, length=self.length)

    def describe(self, table: "FactTable", model: "Transformer") -> dict[str, Any]:
        """Return the JSON entries for the sizes of a table and of a model."""
        shape = model.shape
        return {
            "subjects": table.subjects,
            "relations": table.relations,
            "answers_per_relation": table.answers_per_relation,
            "facts": table.facts,
            "seed": self.seed,
            "dim": shape.dim,
            "heads": shape.heads,
            "head_dim": shape.head_dim,
            "width": shape.width,
            "parameters": shape.parameters,
            "total_parameters": model.total_parameters,
            "facts_per_parameter": table.facts / shape.parameters,
        }


@Parameter(name="*")
@dataclass(frozen=True)
class ShapeOptions:
    """The shape of a transformer."""

    dim: int
    """d, the embedding dimension."""
    heads: int
    """H, the number of attention heads."""
    head_dim: int
    """d_h, the dimension of a head."""
    width: int
    """m, the width of the MLP; 0 means attention only."""

    def check(self) -> None:
        """Raise FactmemError if a size is invalid."""
        check_positive(dim=self.dim, heads=self.heads, head_dim=self.head_dim)
        check_width(self.width)
        check_array_size(max(self.width, self.heads * self.head_dim), self.dim)

    def shape(self) -> "Shape":
        """Return the shape."""
        from factmem.transformer.shape import Shape

        return Shape(self.dim, self.heads, self.head_dim, self.width)


@Parameter(name="*")
@dataclass(frozen=True)
class EvaluationOptions:
    """The test of the result."""

    require: float | None = None
    """Exit with code 1 if the accuracy is below this value."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_accuracy(self.require)

    def passed(self, accuracy: float) -> bool:
        """Return whether an accuracy meets the requirement."""
        return self.require is None or accuracy >= self.require


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Where runs are stored, and what executes them."""

    store: str | None = None
    """File with the results of runs; runs in it are not repeated (default: $FACTMEM_STORE, or a
    file in your data directory)."""
    fresh: bool = False
    """Ignore stored results and replace them."""
    workers: int | None = None
    """Number of worker processes on this machine (default: one per core)."""
    cluster: str | None = None
    """Address of a dask scheduler, such as tcp://host:8786, whose workers are used instead."""

    def check(self) -> None:
        """Raise FactmemError if an option is invalid."""
        check_positive(workers=self.workers)
        if self.cluster is not None:
            from factmem.experiments.cluster import check_address

            check_address(self.cluster)
            if self.workers is not None:
                raise FactmemError("--workers cannot be combined with --cluster")
        store_path(self.store)

    @property
    def store_path(self) -> str:
        """The file of the store."""
        return store_path(self.store)

    def make_workers(self) -> "Workers":
        """Return the workers, local or those of a cluster."""
        if self.cluster is not None:
            from factmem.experiments import ClusterWorkers

            return ClusterWorkers(self.cluster)
        from factmem.experiments import LocalWorkers

        return LocalWorkers(self.workers)


@Parameter(name="*")
@dataclass(frozen=True)
class ScaleOptions:
    """How much is measured."""

    scale: Literal["quick", "paper"] = "quick"
    """quick takes minutes; paper is the authors' full grid and takes hours or days."""
    yes: bool = False
    """Start even if the measurement is expected to take more than an hour."""


def store_path(file: str | None) -> str:
    """Return the path of the store: the file that was given, or the default.

    Raises:
        FactmemError: this is not a file name, it is a directory, or its directory does not exist.
    """
    if file is not None:
        check_file_name("--store", file)
        return file
    from factmem.experiments import default_store

    path = default_store()
    if path.is_dir():
        source = "FACTMEM_STORE" if os.environ.get("FACTMEM_STORE") else "store"
        raise FactmemError(f"{source}: '{printable(str(path), 200)}' is a directory")
    return str(path)


def read_table(table: str, option: str | None = None) -> "FactTable":
    """Read the table that a user names.

    Args:
        table: the path.
        option: the flag that names the file; None for an argument without a flag.

    Raises:
        FactTableError: the file does not exist or is not a valid table.
    """
    from factmem.facts import read_csv

    check_table_file(table, option)
    return read_csv(table)


def check_table_file(table: str, option: str | None = None) -> None:
    """Raise FactTableError if there is no such file."""
    prefix, name = f"{option}: " if option else "", printable(table, 200)
    # A path can be neither empty nor contain NUL.
    if not table or "\0" in table or not Path(table).exists():
        raise FactTableError(
            f"{prefix}file '{name}' does not exist; a table is a CSV file with the columns "
            "subject, relation, answer"
        )
    if Path(table).is_dir():
        raise FactTableError(f"{prefix}'{name}' is a directory, expected a CSV file")


def flag(name: str) -> str:
    """Return the flag of an option, such as `--head-dim` for `head_dim`."""
    return f"--{name.replace('_', '-')}"


def check_seed(seed: int) -> None:
    """Raise FactmemError if this is not a valid seed."""
    if not 0 <= seed <= _MAX_SEED:
        raise FactmemError(f"--seed must be from 0 to {_MAX_SEED}, got {seed}")


def check_accuracy(required: float | None) -> None:
    """Raise FactmemError if the value of `--require` is not an accuracy."""
    if required is not None and not 0 <= required <= 1:
        raise FactmemError(f"--require must be an accuracy from 0 to 1, got {required}")


def check_positive(**sizes: int | None) -> None:
    """Raise FactmemError if a given size is below 1."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise FactmemError(f"{flag(name)} must be at least 1, got {size}")


def check_width(width: int) -> None:
    """Raise FactmemError if an MLP width is negative; 0 means no MLP."""
    if width < 0:
        raise FactmemError(f"--width must be at least 0, got {width}")


def check_length(length: int) -> None:
    """Raise FactmemError if this is not a valid prompt length."""
    if not 3 <= length <= _MAX_LENGTH:
        raise FactmemError(f"--length must be from 3 to {_MAX_LENGTH}, got {length}")


def check_array_size(rows: int, columns: int) -> None:
    """Raise FactmemError if an array of this size could not be indexed with int32."""
    if rows * columns > _MAX_ARRAY_SIZE:
        raise FactmemError(
            f"an array of {rows} × {columns} is too large: at most {_MAX_ARRAY_SIZE} entries"
        )


def check_table_sizes(
    subjects: int | None, relations: int | None, answers: int | None, table: str | None
) -> None:
    """Raise FactmemError unless either all three sizes or a table is given."""
    sizes = (subjects, relations, answers)
    if table is None and None in sizes:
        raise FactmemError("--subjects, --relations and --answers are required, or --table")
    if table is not None and sizes != (None, None, None):
        raise FactmemError("--table cannot be combined with --subjects, --relations or --answers")
    check_positive(subjects=subjects, relations=relations, answers=answers)


def check_file_name(option: str, file: str) -> None:
    """Raise FactmemError if this cannot be a file, or its directory does not exist.

    Args:
        option: the flag that names the file, such as `--out`.
        file: the path.
    """
    if not file or "\0" in file:
        raise FactmemError(f"{option}: '{printable(file, 200)}' is not a file name")
    if Path(file).is_dir():
        raise FactmemError(f"{option}: '{printable(file, 200)}' is a directory")
    _check_parent(option, Path(file).absolute())


def check_output_file(option: str, file: str) -> None:
    """Raise FactmemError if a file cannot be written.

    This runs before the computation, so that hours of work do not end with an error.

    Args:
        option: the flag that names the file, such as `--out`.
        file: the path.
    """
    check_file_name(option, file)
    path = Path(file).absolute()
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FactmemError(f"{option}: '{printable(file, 200)}' is not writable")


def check_plot_file(option: str, file: str) -> None:
    """Raise FactmemError if a plot cannot be written to a file, or has no known format."""
    from factmem.plotting.save import check_format

    try:
        check_format(file)
    except FactmemError as error:
        raise FactmemError(f"{option}: {error}") from None
    check_output_file(option, file)


def check_output_dir(option: str, directory: str) -> None:
    """Raise FactmemError if files cannot be written to a directory.

    The directory itself is created later if it does not exist; its parent must exist.
    """
    if not directory or "\0" in directory:
        raise FactmemError(f"{option}: '{printable(directory, 200)}' is not a directory name")
    path = Path(directory)
    if path.exists() and not path.is_dir():
        raise FactmemError(f"{option}: '{printable(directory, 200)}' is not a directory")
    _check_parent(option, path.absolute())
    existing = path if path.exists() else path.absolute().parent
    if not os.access(existing, os.W_OK | os.X_OK):
        raise FactmemError(f"{option}: directory '{printable(str(existing), 200)}' is not writable")


def _check_parent(option: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise FactmemError(
            f"{option}: directory '{printable(str(path.parent), 200)}' does not exist"
        )
