"""Where a benchmark ran: a figure without its machine says little."""

import platform
from importlib import metadata
from typing import Any

import torch

from knnmt import host
from knnmt.errors import UsageError

PACKAGES = ("knnmt", "torch", "transformers", "numpy", "faiss-cpu", "ctranslate2")


def device_named(name: str) -> torch.device:
    """The device of a name, where no model says it; `auto` is CUDA where that is."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {name!r} is not available: use auto, cpu, cuda or cuda:N") from error
    return device


def machine(device: torch.device) -> dict[str, Any]:
    """The processor, the device, the threads, and how busy it all is."""
    described: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": host.processor(),
        "cores": host.cores(),
        "threads": torch.get_num_threads(),
        "memory": host.installed_memory(),
        "load": host.load(),
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
