"""What command lines share: the form of a device's name."""

from __future__ import annotations

import argparse
import re


def device_name(text: str) -> str:
    """Return `text` if it names a device: auto, cpu, cpu:N, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu(:[1-9]\d*)?|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, cpu, cpu:N (N from 1) or cuda:N")
    return text
