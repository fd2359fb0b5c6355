"""One hierarchy of exceptions; each also derives from the built-in that fits."""


class Error(Exception):
    """Base of every exception of this package."""


class RegionNotFoundError(Error, FileNotFoundError):
    """There is no such region, or its file has lost its name."""


class RegionExistsError(Error, FileExistsError):
    """There is a file of this name already."""


class AccessError(Error, PermissionError):
    """The file's mode or owner does not let this user do what was asked."""


class RegionOSError(Error, OSError):
    """The operating system refused something else, for instance for want of room."""


class HeldError(Error, BlockingIOError):
    """Another process, or this one, holds the slot, the primary lease or the region."""


class NoFreeSlotError(HeldError):
    """Every slot is held."""


class NoSuchSlotError(Error, IndexError):
    """There is no slot of this index."""


class NoSuchRecordError(Error, KeyError):
    """The schema has no such record."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class InvalidSchemaError(Error, ValueError):
    """A declaration breaks a rule."""


class SchemaMismatchError(Error, ValueError):
    """The region measures something else."""


class InvalidRegionError(Error, ValueError):
    """The file is no region, is damaged, of another version, or on a file system unfit for one."""


class EnvironmentVariableError(Error, ValueError):
    """An environment variable is missing or malformed."""


class InvalidValueError(Error, ValueError):
    """The value cannot be given to this gauge."""


class ClosedError(Error, ValueError):
    """The object was closed."""
