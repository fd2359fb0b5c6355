"""Lock-free statistics shared by the processes of one server, in a memory-mapped file.

Each server process owns a slot and counts in it; one of them, the primary, drains the counts of all
into intervals; anyone may look, with an `Inspector` or the `shmstats` command.
"""

import sys as _sys
import sysconfig as _sysconfig

if _sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError(
        "shmstats relies on the GIL and does not support free-threaded interpreters; "
        f"use the ordinary build of Python {_sys.version_info.major}.{_sys.version_info.minor}"
    )

from ._errors import (
    AccessError,
    ClosedError,
    EnvironmentVariableError,
    Error,
    HeldError,
    InvalidRegionError,
    InvalidSchemaError,
    InvalidValueError,
    NoFreeSlotError,
    NoSuchRecordError,
    NoSuchSlotError,
    RegionExistsError,
    RegionNotFoundError,
    RegionOSError,
    SchemaMismatchError,
)
from ._shmstats import (
    Counter,
    CounterDef,
    Gauge,
    GaugeDef,
    InFlight,
    Inspector,
    Interval,
    Observation,
    Owner,
    Primary,
    Record,
    Region,
    Schema,
    Server,
    Snapshot,
    SnapshotDef,
    Totals,
    __version__,
    default_path,
)
from .buffer import SharedStatsBuffer
from .leftovers import remove_leftovers

__all__ = [
    "AccessError",
    "ClosedError",
    "Counter",
    "CounterDef",
    "EnvironmentVariableError",
    "Error",
    "Gauge",
    "GaugeDef",
    "HeldError",
    "InFlight",
    "Inspector",
    "Interval",
    "InvalidRegionError",
    "InvalidSchemaError",
    "InvalidValueError",
    "NoFreeSlotError",
    "NoSuchRecordError",
    "NoSuchSlotError",
    "Observation",
    "Owner",
    "Primary",
    "Record",
    "Region",
    "RegionExistsError",
    "RegionNotFoundError",
    "RegionOSError",
    "Schema",
    "SchemaMismatchError",
    "Server",
    "SharedStatsBuffer",
    "Snapshot",
    "SnapshotDef",
    "Totals",
    "__version__",
    "default_path",
    "remove_leftovers",
]
