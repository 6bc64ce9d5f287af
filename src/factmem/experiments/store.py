"""Results on disk: one SQLite file with a row for every finished run.

Several threads and processes may read and write one store at once. A row is written in one
transaction, so a run is stored completely or not at all, whenever a process is killed.
"""

import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from factmem._core.canonical_json import canonical_json
from factmem._core.errors import FactmemError, StoreError, printable
from factmem.experiments.disk import is_local

__all__ = ["Record", "Store", "default_store"]

_APPLICATION = 0x66616374  # "fact"
_SCHEMA_VERSION = 1
_BUSY_TIMEOUT = 60.0
"""Seconds to wait for another process that is writing. A write takes milliseconds."""
_MAX_PATH_LENGTH = 1000
"""Characters of a path in a message."""
_SCHEMA = """
CREATE TABLE runs (
    identity TEXT PRIMARY KEY,
    measure TEXT NOT NULL,
    version INTEGER NOT NULL,
    config TEXT NOT NULL,
    seed INTEGER,
    metrics TEXT,
    error TEXT,
    seconds REAL NOT NULL,
    versions TEXT NOT NULL,
    threads INTEGER,
    host TEXT NOT NULL,
    finished TEXT NOT NULL,
    CHECK ((metrics IS NULL) <> (error IS NULL))
) WITHOUT ROWID
"""
_JSON = ("config", "metrics", "versions")


@dataclass(frozen=True)
class Record:
    """A finished run, as it is stored.

    Args:
        identity: `Task.identity` of its task.
        experiment, version, config, seed: the task.
        metrics: the measured data; None if the run failed.
        error: why it failed; None if it did not.
        seconds: wall-clock time of the run.
        versions: versions of Python and of the libraries.
        threads: number of threads that jax used.
        host: name of the machine.
        finished: time of completion, in UTC.
        from_store: whether the record was read from a store and not run now.
    """

    identity: str
    experiment: str
    version: int
    config: Mapping[str, Any]
    seed: int | None
    metrics: Mapping[str, Any] | None
    error: str | None
    seconds: float
    versions: Mapping[str, str]
    threads: int | None
    host: str
    finished: str
    from_store: bool = field(default=False, compare=False)


_FIELDS = tuple(entry.name for entry in fields(Record) if entry.name != "from_store")
_COLUMNS = tuple("measure" if name == "experiment" else name for name in _FIELDS)
"""Columns of the table. Schema 1 calls the experiment's name `measure`."""


def default_store() -> Path:
    """Return the default path: `$FACTMEM_STORE`, or a file in the user's data folder."""
    path = os.environ.get("FACTMEM_STORE")
    if path:
        return Path(path)
    from platformdirs import user_data_dir

    return Path(user_data_dir("factmem")) / "runs.sqlite"


class Store:
    """A file of finished runs.

    Args:
        path: the file. It is created if it does not exist; its folder must exist, except for the
            folder of `default_store`, which is created too.
        read_only: do not create or write anything.

    Raises:
        StoreError: the file belongs to another program, is damaged, has another schema version or
            cannot be opened. The file is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        if self.path.is_dir():  # sqlite would blame permissions or the disk
            raise StoreError(f"{self._name} is a directory, expected a file")
        with self._explained():
            if not read_only:
                self._make_folder()
            self._connection = self._connect_to_read() if read_only else self._connect("mode=rwc")
        try:
            with self._explained():
                self._recognize(read_only)
        except BaseException:
            self.close()
            raise

    def _make_folder(self) -> None:
        folder = self.path.absolute().parent
        if folder.is_dir():
            return
        name = printable(str(folder), _MAX_PATH_LENGTH)
        if self.path != default_store():
            raise StoreError(f"cannot create {self._name}: there is no folder '{name}'")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot create the folder '{name}': {error.strerror}") from None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def get(self, identity: str) -> Record | None:
        """Return the run with this identity, or None."""
        rows = self._rows("WHERE identity = ?", identity)
        return rows[0] if rows else None

    def put(self, record: Record, *, replace: bool = False) -> Record:
        """Store a run and return the stored record.

        A successful run stays, even if another process ran the same task; a failed run is replaced.

        Args:
            record: the run.
            replace: replace a successful run too.
        """
        values = [_entry(record, name) for name in _FIELDS]
        with self._explained(), self._lock, self._transaction():
            row = self._connection.execute(
                "SELECT error IS NULL FROM runs WHERE identity = ?", (record.identity,)
            ).fetchone()
            if row is None or not row[0] or replace:
                self._connection.execute(
                    f"INSERT OR REPLACE INTO runs ({', '.join(_COLUMNS)}) "
                    f"VALUES ({', '.join('?' * len(_COLUMNS))})",
                    values,
                )
        stored = self.get(record.identity)
        assert stored is not None, "runs are never removed"
        return stored

    def records(
        self,
        *,
        experiment: str | None = None,
        seed: int | None = None,
        failed: bool | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> list[Record]:
        """Return all runs that match, the latest last.

        Args:
            experiment: the name of the experiment.
            seed: the seed.
            failed: whether the run failed.
            config: entries that the configuration must have.
        """
        entries = {name: canonical_json(value) for name, value in (config or {}).items()}
        return [
            record
            for record in self._rows("ORDER BY finished, identity")
            if experiment in (None, record.experiment)
            and seed in (None, record.seed)
            and failed in (None, record.error is not None)
            and all(
                name in record.config and canonical_json(record.config[name]) == value
                for name, value in entries.items()
            )
        ]

    def named(self, start: str) -> Record:
        """Return the only run whose identity starts with `start`.

        Raises:
            FactmemError: no run matches, or several do.
        """
        # Not LIKE: the text comes from users, and % is an ordinary character in it.
        hexadecimal = re.fullmatch("[0-9a-f]*", start) is not None
        where = "WHERE substr(identity, 1, ?) = ? LIMIT 2"
        matches = self._rows(where, len(start), start) if hexadecimal else []
        if len(matches) != 1:
            problem = "several runs have IDs" if matches else "no run has an ID"
            raise FactmemError(
                f"{problem} starting with '{printable(start)}'; `factmem runs` lists all IDs"
            )
        return matches[0]

    def _rows(self, where: str, *values: Any) -> list[Record]:
        with self._explained(), self._lock:
            rows = self._connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM runs {where}", values
            ).fetchall()
            return [_record(dict(zip(_FIELDS, row, strict=True))) for row in rows]

    def _connect_to_read(self) -> sqlite3.Connection:
        connection = self._connect("mode=ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            # WAL writes files beside the database even when reading. On a read-only disk nobody
            # else writes, so the file can be opened as immutable.
            if not self.path.exists() or Path(f"{self.path}-wal").exists():
                raise
            connection.close()
            connection = self._connect("mode=ro&immutable=1")
        return connection

    def _connect(self, options: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{options}"
        return sqlite3.connect(
            uri,
            uri=True,
            timeout=_BUSY_TIMEOUT,
            isolation_level=None,  # transactions are explicit
            check_same_thread=False,  # `_lock` serializes access
        )

    def _recognize(self, read_only: bool) -> None:
        """Check that the file is an intact store of this version; initialize an empty file."""
        query = self._connection.execute
        empty = query("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        application = query("PRAGMA application_id").fetchone()[0]
        if empty and application == 0 and not read_only:
            # WAL allows reading during a write, but needs shared memory, which network disks lack.
            query(f"PRAGMA journal_mode = {'WAL' if self._local else 'DELETE'}")
            self._create_table()
        elif application != _APPLICATION:
            raise StoreError(f"{self._name} is not a factmem store; choose another file")
        version = query("PRAGMA user_version").fetchone()[0]
        if version != _SCHEMA_VERSION:
            raise StoreError(
                f"{self._name} has schema version {version}, expected {_SCHEMA_VERSION}; choose "
                "another file, or use the version of factmem that wrote it"
            )
        if not read_only and not self._local:  # it may have been created on a local disk
            query("PRAGMA journal_mode = DELETE")
        query("PRAGMA synchronous = FULL")
        if query("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StoreError(f"{self._name} is damaged; restore it or choose another file")
        if not read_only:
            with self._transaction():  # fail before the work if the file is not writable
                pass

    def _create_table(self) -> None:
        with self._transaction():
            # Another process may have created it meanwhile.
            if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                self._connection.execute(_SCHEMA)
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has already rolled back if the disk is full
                self._connection.execute("ROLLBACK")
            raise

    @property
    def _local(self) -> bool:
        return is_local(self.path)

    @property
    def _name(self) -> str:
        return f"'{printable(self.path.name)}'"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite into messages that say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            # The lowest eight bits are the primary error code.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            reason = _REASONS.get(code, f"cannot be used ({printable(str(error))})")
            raise StoreError(f"{self._name} {reason}") from None


_REASONS = {
    sqlite3.SQLITE_NOTADB: "is not a factmem store or is damaged; choose another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it or choose another file",
    sqlite3.SQLITE_READONLY: "cannot be written: the file, its folder or its disk is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it does not exist, or permission is denied",
    sqlite3.SQLITE_FULL: "could not store the last result: the disk is full; others are stored",
    sqlite3.SQLITE_IOERR: "could not be read or written: the disk is full or failing",
    sqlite3.SQLITE_BUSY: f"was locked by another process for {_BUSY_TIMEOUT:.0f} s; try again",
}


def _entry(record: Record, name: str) -> Any:
    value = getattr(record, name)
    if name == "config":
        return canonical_json(value)
    return json.dumps(value, allow_nan=False) if name in _JSON and value is not None else value


def _record(row: dict[str, Any]) -> Record:
    try:
        for name in _JSON:
            row[name] = None if row[name] is None else json.loads(row[name])
    except (ValueError, TypeError, RecursionError):
        raise StoreError(f"run {row['identity']:.12} is damaged in the store") from None
    return Record(**row, from_store=True)
