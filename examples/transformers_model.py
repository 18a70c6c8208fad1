"""Loads a model of transformers with safetensors and with Penstock: same tensors, both times.

    python examples/transformers_model.py MODEL [--device cuda:0] [--rounds 3]

MODEL is a folder or a name that transformers knows. Each way loads in turn, the first round is not
counted; the least time of each is printed.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from time import perf_counter
from typing import Any

from penstock import safetensors


def load(model: str, device: str) -> tuple[float, dict[str, Any]]:
    """Return the seconds that loading takes, and the tensors."""
    transformers, torch = import_module("transformers"), import_module("torch")
    placed = {} if device == "cpu" else {"device_map": device}
    start = perf_counter()
    loaded = transformers.AutoModel.from_pretrained(model, **placed)
    if device != "cpu":
        torch.cuda.synchronize()
    return perf_counter() - start, loaded.state_dict()


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of tensors that are not the same, bit for bit."""
    torch = import_module("torch")

    def same(a: Any, b: Any) -> bool:
        if a.dtype != b.dtype or a.shape != b.shape or a.device != b.device:
            return False
        raw = [x.contiguous().reshape(-1).view(torch.uint8) for x in (a, b)]
        return bool(torch.equal(*raw))

    names = one.keys() | other.keys()
    return [
        n for n in sorted(names) if n not in one or n not in other or not same(one[n], other[n])
    ]


def main() -> int:
    """Load, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    theirs, ours = [], []
    for _ in range(arguments.rounds + 1):
        seconds, expected = load(arguments.model, arguments.device)
        theirs.append(seconds)
        with safetensors.installed(arguments.device):
            seconds, tensors = load(arguments.model, arguments.device)
        ours.append(seconds)
        if wrong := differing(tensors, expected):
            print(f"{len(wrong)} tensors differ: {', '.join(wrong[:5])}", file=sys.stderr)
            return 1
    size = sum(tensor.nbytes for tensor in tensors.values())
    told = f"{len(tensors)} tensors, {size / (1 << 20):.1f} MiB, equal"
    print(f"safetensors {min(theirs[1:]):.3f} s, penstock {min(ours[1:]):.3f} s: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
