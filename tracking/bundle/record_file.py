"""A small JSON file of one record, with a ``schema_version``, beside others in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from services import limits
from services.errors import Problem, StorageError
from services.storage import files

T = TypeVar("T")


@dataclass(frozen=True)
class RecordFile(Generic[T]):
    """Reads and writes the file.

    Attributes:
        name: of the file.
        adapter: of the record, a dataclass with a field `schema_version`.
        what: in messages: "a record of promotions".
        remedy: what to do with a damaged one.
        version: the newest schema version that is understood.
    """

    name: str
    adapter: TypeAdapter[T]
    what: str
    remedy: str
    version: int

    def write(self, record: T, folder: str) -> None:
        """Write it whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_bytes(files.join(folder, self.name), self.adapter.dump_json(record, indent=1))

    def read(self, folder: str) -> T | None:
        """The record; None when there is no such file.

        Raises:
            StorageError: it is damaged, or a newer classwise wrote it.
        """
        path = files.join(folder, self.name)
        if not files.exists(path):
            return None
        try:
            record = self.adapter.validate_json(files.read_bytes(path, most=limits.FILE))
        except ValidationError as error:
            message = str(error.errors()[0]["msg"])
            raise StorageError(Problem(path, self.what, message, self.remedy)) from error
        known: Any = record
        if known.schema_version > self.version:
            expected = f"schema_version {self.version} or older"
            raise StorageError(Problem(path, expected, str(known.schema_version), "update classwise to read it"))
        return record
