"""TimingCache: times of calls in a JSON file, keyed by machine, versions, call and graph."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import bitgnn
from bitgnn import _library
from bitgnn._files import write_atomically
from bitgnn.measure.environment import cpu_model

__all__ = ["CallTime", "TimingCache", "environment_of"]

KIND = "bitgnn operator timings"
FORMAT = 1
DRIVER_FILE = Path("/proc/driver/nvidia/version")
HEAD = ("kind", "format", "environments")


@dataclass(frozen=True)
class CallTime:
    """Time of one call.

    Attributes:
        seconds: until its result is there, launches left out on CUDA.
        host: until the next call can be begun; the same on the CPU.
    """

    seconds: float
    host: float

    @classmethod
    def from_description(cls, description: Any) -> CallTime:
        """Read ``[seconds, host]``.

        Raises:
            ValueError: it is not two positive, finite numbers.
        """
        if (
            not isinstance(description, list)
            or len(description) != 2
            or not all(type(value) in (int, float) for value in description)
            or not all(math.isfinite(value) and value > 0 for value in description)
        ):
            raise ValueError(f"a timing must be two positive, finite numbers, got {description!r}")
        return cls(*map(float, description))


def environment_of(device: torch.device) -> dict[str, Any]:
    """What times on a device depend on beside the call: the machine and the software."""
    versions = {"bitgnn": bitgnn.__version__, "torch": torch.__version__}
    if device.type == "cuda":
        return {
            "device": torch.cuda.get_device_name(device),
            "capability": list(torch.cuda.get_device_capability(device)),
            "cuda": torch.version.cuda,
            "driver": _driver(),
            **versions,
        }
    return {
        "device": cpu_model(),
        "threads": torch.get_num_threads(),
        "capability": _library.library_info().cpu_capability,
        **versions,
    }


def _driver() -> str | None:
    """Version of NVIDIA's kernel module, None where the system does not tell."""
    try:
        return DRIVER_FILE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def canonical(values: Mapping[str, Any]) -> str:
    """One text for equal values."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


class TimingCache:
    """Times of calls on one device, kept in a file between runs.

    The file may hold times of other machines, versions and numbers of threads beside those that
    count here. A file that cannot be read, is not such a file, or holds anything that is no time
    is left out with one warning, and never written over unless it is one of ours in another
    format. Processes may share a file: each adds what it has measured.

    Args:
        path: the file; None keeps times in memory alone.
        device: the device that is timed.
    """

    def __init__(self, path: str | Path | None, device: torch.device | str) -> None:
        self.path = None if path is None else Path(path)
        self.environment = environment_of(torch.device(device))
        self._key = canonical(self.environment)
        self._may_write = self.path is not None
        self._has_warned = False
        self._times = self._read().get(self._key, {})
        self._new: dict[str, CallTime] = {}

    def __len__(self) -> int:
        return len(self._times)

    def get(self, signature: Mapping[str, Any]) -> CallTime | None:
        """The time of a call, None where it is not known.

        Args:
            signature: plain values that tell calls of other times apart.
        """
        return self._times.get(canonical(signature))

    def put(self, signature: Mapping[str, Any], time: CallTime) -> None:
        """Keep the time of a call; :meth:`save` writes it to the file.

        Raises:
            ValueError: the time is not positive and finite.
        """
        CallTime.from_description([time.seconds, time.host])
        key = canonical(signature)
        self._times[key] = self._new[key] = time

    def save(self) -> None:
        """Add what was put in to the file, which is written whole or not at all."""
        if self.path is None or not self._new:
            return
        held = self._read()  # other processes may have added theirs meanwhile
        if not self._may_write:
            return
        held.setdefault(self._key, {}).update(self._new)
        environments = [
            {
                "environment": json.loads(environment),
                "times": {key: [time.seconds, time.host] for key, time in times.items()},
            }
            for environment, times in held.items()
        ]
        text = json.dumps(dict(zip(HEAD, (KIND, FORMAT, environments), strict=True)), indent=1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, text.encode())
        except OSError as error:
            self._leave_out(f"cannot be written ({error})")
            return
        self._new.clear()

    def _read(self) -> dict[str, dict[str, CallTime]]:
        """Times by environment; nothing where the file is not there or not to be trusted."""
        if self.path is None or not self._may_write or not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_bytes())
            if not isinstance(content, dict) or content.get("kind") != KIND:
                raise ValueError(f"it is not a file of {KIND}")
        except (OSError, ValueError, RecursionError) as error:
            self._leave_out(f"is left out: {error}")
            return {}
        try:
            return _environments(content)
        except (KeyError, TypeError, ValueError) as error:
            self._warn(f"is left out and begun anew: {error}")
            return {}

    def _leave_out(self, why: str) -> None:
        """Leave the file as it is from now on."""
        self._may_write = False
        self._warn(f"{why}; times are kept in memory alone. Delete the file or name another one")

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"TimingCache: {self.path} {what}", UserWarning, stacklevel=4)


def _environments(content: Mapping[str, Any]) -> dict[str, dict[str, CallTime]]:
    """Read a file's content.

    Raises:
        KeyError: an entry is missing.
        TypeError: an entry has another type.
        ValueError: another format, or something is no time.
    """
    if sorted(content) != sorted(HEAD) or content["format"] != FORMAT:
        raise ValueError(f"its format is {content.get('format')!r}, not {FORMAT}")
    found: dict[str, dict[str, CallTime]] = {}
    for part in content["environments"]:
        times = part["times"]
        if not isinstance(part["environment"], dict) or not isinstance(times, dict):
            raise ValueError("an environment and its times must be mappings")
        found[canonical(part["environment"])] = {
            key: CallTime.from_description(value) for key, value in times.items()
        }
    return found
