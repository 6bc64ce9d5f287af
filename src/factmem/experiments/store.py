"""Results on disk: one SQLite file, a row for every run that ended.

Several threads and processes may read and write one store at once. A row is written in one
transaction, so a run is there as a whole or not at all, whatever is killed when.
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

from factmem._core.canonical_json import canonical
from factmem._core.errors import FactmemError, StoreError, visible
from factmem.experiments.disk import is_local

__all__ = ["Record", "Store", "default_store"]

_APPLICATION = 0x66616374  # "fact"
_SCHEMA_VERSION = 1
_SECONDS_TO_WAIT = 60.0
"""For another process that is writing; each write takes milliseconds."""
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
    """A run that ended, as it is kept.

    Args:
        identity: of its task; see `Task.identity`.
        measure, version, config, seed: the task.
        metrics: what was measured; None if the run failed.
        error: why it failed; None if it did not.
        seconds: how long it took.
        versions: of Python and of the libraries that it ran with.
        threads: that jax had.
        host: the machine.
        finished: when, in UTC.
        kept: whether this was read from a store, not run.
    """

    identity: str
    measure: str
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
    kept: bool = field(default=False, compare=False)


_COLUMNS = tuple(entry.name for entry in fields(Record) if entry.name != "kept")


def default_store() -> Path:
    """Where runs are kept unless another file is named: `$FACTMEM_STORE`, or the user's data."""
    named = os.environ.get("FACTMEM_STORE")
    if named:
        return Path(named)
    from platformdirs import user_data_dir

    return Path(user_data_dir("factmem")) / "runs.sqlite"


class Store:
    """A file of runs.

    Args:
        path: of the file; it is made if it does not exist, with the folder that it is in.
        read_only: nothing is made, and nothing can be written.

    Raises:
        StoreError: another program's file, a damaged one, one of another version of the schema, or
            one that cannot be opened. The file stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._explained():
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._connect_to_read() if read_only else self._connect("mode=rwc")
        try:
            with self._explained():
                self._recognize(read_only)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the file go."""
        self._connection.close()

    def get(self, identity: str) -> Record | None:
        """The run with this identity, if it has ended."""
        rows = self._rows("WHERE identity = ?", identity)
        return rows[0] if rows else None

    def put(self, record: Record, *, replace: bool = False) -> Record:
        """Keeps a run, and gives what is kept.

        A run that succeeded stays, even if another process measured it again; only one that failed
        gives way.

        Args:
            record: the run.
            replace: whether it takes the place of one that succeeded too.
        """
        values = [_entry(record, name) for name in _COLUMNS]
        with self._explained(), self._lock, self._transaction():
            found = self._connection.execute(
                "SELECT error IS NULL FROM runs WHERE identity = ?", (record.identity,)
            ).fetchone()
            if found is None or not found[0] or replace:
                self._connection.execute(
                    f"INSERT OR REPLACE INTO runs ({', '.join(_COLUMNS)}) "
                    f"VALUES ({', '.join('?' * len(_COLUMNS))})",
                    values,
                )
        kept = self.get(record.identity)
        assert kept is not None, "runs are never removed"
        return kept

    def records(
        self,
        *,
        measure: str | None = None,
        seed: int | None = None,
        failed: bool | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> list[Record]:
        """All runs, the latest last, or those that fit.

        Args:
            measure: the name of their measure.
            seed: theirs.
            failed: whether they failed.
            config: entries of their configuration.
        """
        wanted = {name: canonical(value) for name, value in (config or {}).items()}
        return [
            record
            for record in self._rows("ORDER BY finished, identity")
            if measure in (None, record.experiment)
            and seed in (None, record.seed)
            and failed in (None, record.error is not None)
            and all(
                name in record.config and canonical(record.config[name]) == value
                for name, value in wanted.items()
            )
        ]

    def named(self, start: str) -> Record:
        """The one run whose identity starts so.

        Raises:
            FactmemError: none does, or several do.
        """
        # Not LIKE: what users type is data, and % is a character.
        known = re.fullmatch("[0-9a-f]*", start) is not None
        where = "WHERE substr(identity, 1, ?) = ? LIMIT 2"
        found = self._rows(where, len(start), start) if known else []
        if len(found) != 1:
            many = "several runs start" if found else "no run starts"
            raise FactmemError(f"{many} with '{visible(start)}'; factmem runs lists them")
        return found[0]

    def _rows(self, where: str, *values: Any) -> list[Record]:
        with self._explained(), self._lock:
            rows = self._connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM runs {where}", values
            ).fetchall()
            return [_record(dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    def _connect_to_read(self) -> sqlite3.Connection:
        connection = self._connect("mode=ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            # Even to read, WAL wants to write beside the file. On a read-only disk nobody writes.
            if not self.path.exists() or Path(f"{self.path}-wal").exists():
                raise
            connection.close()
            connection = self._connect("mode=ro&immutable=1")
        return connection

    def _connect(self, how: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?{how}"
        return sqlite3.connect(
            uri,
            uri=True,
            timeout=_SECONDS_TO_WAIT,
            isolation_level=None,  # transactions begin where the code says so
            check_same_thread=False,  # a lock of ours does that
        )

    def _recognize(self, read_only: bool) -> None:
        """Checks that the file is a whole store of this version, or makes it one if it is empty."""
        ask = self._connection.execute
        empty = ask("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        application = ask("PRAGMA application_id").fetchone()[0]
        if empty and application == 0 and not read_only:
            # WAL lets others read while one writes, but needs memory that machines do not share.
            ask(f"PRAGMA journal_mode = {'WAL' if self._local else 'DELETE'}")
            self._make()
        elif application != _APPLICATION:
            raise StoreError(f"{self._name} is a database, but no store of runs: name another file")
        version = ask("PRAGMA user_version").fetchone()[0]
        if version != _SCHEMA_VERSION:
            raise StoreError(
                f"{self._name} was written by another version of factmem (schema {version}, here "
                f"{_SCHEMA_VERSION}): name another file, or use that version"
            )
        if not read_only and not self._local:  # it may have been made elsewhere
            ask("PRAGMA journal_mode = DELETE")
        ask("PRAGMA synchronous = FULL")
        if ask("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StoreError(f"{self._name} is damaged: restore it, or name another file")
        if not read_only:
            with self._transaction():  # so that what cannot be written is known before any work
                pass

    def _make(self) -> None:
        with self._transaction():
            # Another process may have been faster.
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
            with suppress(sqlite3.Error):  # a full disk has rolled it back already
                self._connection.execute("ROLLBACK")
            raise

    @property
    def _local(self) -> bool:
        return is_local(self.path)

    @property
    def _name(self) -> str:
        return f"'{visible(self.path.name)}'"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as sentences that say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            # Its upper bits say in detail what the lowest eight say.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            reason = _REASONS.get(code, f"cannot be used ({visible(str(error))})")
            raise StoreError(f"{self._name} {reason}") from None


_REASONS = {
    sqlite3.SQLITE_NOTADB: "is no store of runs, or it is damaged: name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it, or name another file",
    sqlite3.SQLITE_READONLY: "cannot be written: the file, its folder or its disk is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: it does not exist, or may not be read or written",
    sqlite3.SQLITE_FULL: "could not take the last result, the disk is full; all others are kept",
    sqlite3.SQLITE_IOERR: "could not be read or written: its disk is full or failing",
    sqlite3.SQLITE_BUSY: f"was in use by another process for {_SECONDS_TO_WAIT:.0f} s: try again",
}


def _entry(record: Record, name: str) -> Any:
    value = getattr(record, name)
    if name == "config":
        return canonical(value)
    return json.dumps(value, allow_nan=False) if name in _JSON and value is not None else value


def _record(row: dict[str, Any]) -> Record:
    try:
        for name in _JSON:
            row[name] = None if row[name] is None else json.loads(row[name])
    except (ValueError, TypeError, RecursionError):
        raise StoreError(f"run {row['identity']:.12} is damaged in the store") from None
    return Record(**row, kept=True)
