"""Where and against what: the CPU, the kernel's huge pages, the versions of everyone."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

DISTRIBUTIONS = (
    "tensorwire numpy ml_dtypes tensorflow tensorflow-cpu pyarrow msgpack msgpack-numpy tenso"
    " safetensors protobuf torch h5py joblib tfrecord tfrecords tfx-bsl isal cramjam"
)


def cpu() -> str:
    """The CPU's name, as the system tells it."""
    info = Path("/proc/cpuinfo")
    found = (
        re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if info.exists()
        else None
    )
    return found[1].strip() if found else platform.processor() or platform.machine()


def huge_pages() -> str:
    """What the kernel does about huge pages: "always", "madvise", "never", or "unknown"."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w+)\]", setting.read_text()) if setting.exists() else None
    return found[1] if found else "unknown"


def memory_available() -> int:
    """Bytes that can be had without swapping."""
    info = Path("/proc/meminfo")
    found = (
        re.search(r"^MemAvailable:\s*(\d+) kB$", info.read_text(), re.MULTILINE)
        if info.exists()
        else None
    )
    return int(found[1]) << 10 if found else 1 << 62


def versions() -> dict[str, str]:
    """The version of each library that takes part and is installed."""
    found = {}
    for name in DISTRIBUTIONS.split():
        try:
            found[name] = version(name)
        except ModuleNotFoundError:
            continue
    return found


def facts() -> dict[str, Any]:
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "huge_pages": huge_pages(),
        "load_average": os.getloadavg()[0],
        "versions": versions(),
    }
