"""headpond feeds training: files, shards, records and tokens to batches, in exact order."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headpond.datasets import (
        Dataset,
        from_arrays,
        from_files,
        from_records,
        from_tokens,
        from_webdataset,
    )
    from headpond.engine import Engine, configure, info
    from headpond.errors import (
        AccessDenied,
        CorruptData,
        Error,
        InvalidArgument,
        NotFound,
        ObjectChanged,
        Timeout,
        Unavailable,
    )
    from headpond.loader import Loader
    from headpond.objects import (
        Manifest,
        ObjectInfo,
        list,
        read,
        read_into,
        read_many,
        stat,
    )
    from headpond.pipeline import Field, Pipeline
    from headpond.ragged import Ragged
    from headpond.report import Report, SampleError, Warmed

    __version__: str

__all__ = [
    "AccessDenied",
    "CorruptData",
    "Dataset",
    "Engine",
    "Error",
    "Field",
    "InvalidArgument",
    "Loader",
    "Manifest",
    "NotFound",
    "ObjectChanged",
    "ObjectInfo",
    "Pipeline",
    "Ragged",
    "Report",
    "SampleError",
    "Timeout",
    "Unavailable",
    "Warmed",
    "configure",
    "from_arrays",
    "from_files",
    "from_records",
    "from_tokens",
    "from_webdataset",
    "info",
    "list",
    "read",
    "read_into",
    "read_many",
    "stat",
]

# Name to module: imported when it is first used, so that `import headpond` costs next to nothing.
_HOMES = {
    "datasets": "Dataset from_arrays from_files from_records from_tokens from_webdataset",
    "engine": "Engine configure info",
    "errors": "AccessDenied CorruptData Error InvalidArgument NotFound ObjectChanged Timeout "
    "Unavailable",
    "loader": "Loader",
    "objects": "Manifest ObjectInfo list read read_into read_many stat",
    "pipeline": "Field Pipeline",
    "ragged": "Ragged",
    "report": "Report SampleError Warmed",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from headpond._core import version

        return version()
    if name not in _HOME:
        raise AttributeError(f"module 'headpond' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"headpond.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> Any:
    return sorted([*globals(), *_HOME])
