"""The element types of safetensors, and their names in NumPy and DLPack. Knows no files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Dtype(NamedTuple):
    """One element type."""

    bits: int
    numpy: str  # its name in NumPy or ml_dtypes; empty if neither has it
    code: int  # DLPack's DLDataTypeCode


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

DTYPES = {
    "BOOL": Dtype(8, "bool", _BOOL),
    # Several elements share a byte, and libraries name such types differently. They are returned as
    # packed bytes.
    "F4": Dtype(4, "", _UINT),
    "F6_E2M3": Dtype(6, "", _UINT),
    "F6_E3M2": Dtype(6, "", _UINT),
    "U8": Dtype(8, "uint8", _UINT),
    "I8": Dtype(8, "int8", _INT),
    "F8_E5M2": Dtype(8, "float8_e5m2", 12),
    "F8_E4M3": Dtype(8, "float8_e4m3fn", 10),
    "F8_E8M0": Dtype(8, "float8_e8m0fnu", 14),
    "F8_E4M3FNUZ": Dtype(8, "float8_e4m3fnuz", 11),
    "F8_E5M2FNUZ": Dtype(8, "float8_e5m2fnuz", 13),
    "I16": Dtype(16, "int16", _INT),
    "U16": Dtype(16, "uint16", _UINT),
    "F16": Dtype(16, "float16", _FLOAT),
    "BF16": Dtype(16, "bfloat16", _BFLOAT),
    "I32": Dtype(32, "int32", _INT),
    "U32": Dtype(32, "uint32", _UINT),
    "F32": Dtype(32, "float32", _FLOAT),
    "C64": Dtype(64, "complex64", _COMPLEX),
    "F64": Dtype(64, "float64", _FLOAT),
    "I64": Dtype(64, "int64", _INT),
    "U64": Dtype(64, "uint64", _UINT),
}


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """Return NumPy's type for a type of safetensors; None if NumPy and ml_dtypes have none.

    NumPy has no bfloat16 and no 8-bit floats; the package ml_dtypes, if installed, adds them.
    """
    import numpy as np

    known = DTYPES[name].numpy
    if hasattr(np, known):
        return np.dtype(known)
    try:
        import ml_dtypes
    except ImportError:
        return None
    added = getattr(ml_dtypes, known, None) if known else None
    return None if added is None else np.dtype(added)
