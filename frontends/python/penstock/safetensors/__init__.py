"""Tensors of safetensors files, into NumPy arrays, DLPack tensors or device memory."""

from __future__ import annotations

from penstock.safetensors.header import FormatError

__all__ = ["FormatError"]
