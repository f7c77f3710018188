"""Where a benchmark ran: a figure without its machine says little."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from knnmt.errors import UsageError

PACKAGES = ("knnmt", "torch", "transformers", "numpy", "faiss-cpu", "ctranslate2")


def device_named(name: str) -> torch.device:
    """The device of a name, where no model says it; `auto` is CUDA where that is."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"there is no device {name!r} here: use auto, cpu, cuda or cuda:N") from error
    return device


def machine(device: torch.device) -> dict[str, Any]:
    """The processor, the device, the threads, and how busy it all is."""
    described: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": os.getloadavg()[0],
        "device": str(device),
    }
    if device.type == "cuda":
        described["device_name"] = torch.cuda.get_device_name(device)
    return described


def versions() -> dict[str, str]:
    """Of what decides on speed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Its name, where the kernel tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
