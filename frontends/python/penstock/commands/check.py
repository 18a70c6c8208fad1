"""Check what this machine offers to penstock, by trying it.

The command tries the system calls that read storage, asks the file system at PATH (default: the
current folder) what it supports, tells what mounts need, lists the devices, and says which backend
`auto` picks and why. For everything that is missing it says what that costs and how to get it.
Nothing of it is required, since the CPU backend and plain reads work everywhere. So the exit code
is 0 unless PATH cannot be examined.
"""

from __future__ import annotations

import argparse
import json

import penstock
from penstock.arguments import chosen_device
from penstock.probes import devices, mounts, storage, system
from penstock.probes.finding import OK, Finding

EXAMPLE = """\
  $ penstock check /data
  machine
    ok       kernel         Linux 6.18.44 x86_64
    ...
  auto picks cpu:2: dlopen: No such device: no CUDA driver on this machine (libcuda.so.1)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock check`."""
    parser.add_argument("path", nargs="?", default=".", help="a file or folder (default: .)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _print_text(found: list[Finding], device: str, why: str) -> None:
    group = ""
    for finding in found:
        if finding.group != group:
            group = finding.group
            print(group)
        print(f"  {finding.state:<8} {finding.name:<14} {finding.value}")
        if finding.state != OK:
            for label, text in (("costs", finding.cost), ("get it", finding.remedy)):
                if text:
                    print(f"  {'':<8} {'':<14} {label}: {text}")
    print(f"auto picks {device}: {why}")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings."""
    chosen_device(None)  # report a wrong device name before anything else
    cuda = devices.cuda()
    found = [
        *system.findings(),
        *storage.findings(arguments.path),
        *mounts.findings(),
        *devices.findings(cuda),
    ]
    device, why = devices.picked()
    if arguments.json:
        answer = {
            "version": penstock.__version__,
            "path": arguments.path,
            "file_system": storage.file_system(arguments.path),
            "backend": {"auto": device, "why": why},
            "findings": [finding.as_dict() for finding in found],
        }
        print(json.dumps(answer, indent=2))
    else:
        _print_text(found, device, why)
    return 0
