"""Goal: torch tensors have the bytes, types and shapes of the file, and other libraries get them.

Where torch is missing, a fake on NumPy takes its place.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import struct
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from penstock import safetensors
from penstock.safetensors import installation
from penstock.safetensors import torch as ours

np = pytest.importorskip("numpy")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "transformers_model.py"
HAS_TORCH = importlib.util.find_spec("torch") is not None

TENSORS: dict[str, tuple[str, list[int], bytes]] = {
    "half": ("F16", [3, 5], np.arange(15, dtype="f2").tobytes()),
    "mask": ("BOOL", [3], b"\1\0\1"),
    "scalar": ("F32", [], np.float32(3.5).tobytes()),
    "empty": ("F64", [0, 3], b""),
    "complex": ("C64", [2], np.array([1 + 2j, 3 - 4j], "c8").tobytes()),
    "odd": ("I8", [7, 1, 3], bytes(range(21))),
    "long": ("I64", [4, 2], np.arange(8).tobytes()),
}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module torch, or a fake."""
    if HAS_TORCH:
        return importlib.import_module("torch")
    monkeypatch.setitem(sys.modules, "torch", importlib.import_module("fake_torch").module())
    return sys.modules["torch"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of TENSORS."""
    header, data = {}, b""
    for name, (dtype, shape, content) in TENSORS.items():
        place = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
        data += content
    raw = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def check(torch: Any, name: str, tensor: Any) -> None:
    """Check a tensor against what is in the file."""
    dtype, shape, content = TENSORS[name]
    assert list(tensor.shape) == shape
    assert tensor.dtype == ours.torch_dtype(dtype)
    assert tensor.numpy().tobytes() == content, name


def test_importing_and_using_penstock_imports_no_torch(path: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None; from penstock import safetensors as s;"
        f"s.load_file({str(path)!r}); s.load_file({str(path)!r}, 'cpu');"
        "assert 'safetensors' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("device", [None, "cpu", "cpu:0"])
@pytest.mark.parametrize("framework", ["pt", "torch", "pytorch"])
def test_all_tensors(torch: Any, path: Path, framework: str, device: str | None) -> None:
    loaded = safetensors.load_file(path, device, framework=framework)
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in loaded.items():
        check(torch, name, tensor)
        if tensor.numpy().size:
            assert tensor.data_ptr() % 64 == 0


def test_single_tensors_and_parts(torch: Any, path: Path) -> None:
    with safetensors.safe_open(path, "pt") as opened:
        for name in opened.keys():  # noqa: SIM118 (no mapping)
            check(torch, name, opened.get_tensor(name))
            check(torch, name, opened.get_slice(name)[...])
        part = opened.get_slice("half")[1:, ::2]
        assert part.tolist() == [[5, 7, 9], [10, 12, 14]]
        assert part.dtype == torch.float16


def test_content_of_a_file(torch: Any, path: Path) -> None:
    content = path.read_bytes()
    for loaded in (safetensors.load(content, framework="pt"), ours.load(content)):
        assert loaded.keys() == TENSORS.keys()
        for name, tensor in loaded.items():
            check(torch, name, tensor)
    arrays = safetensors.load(content)
    assert {name: array.tobytes() for name, array in arrays.items()} == {
        name: content for name, (_, _, content) in TENSORS.items()
    }
    assert safetensors.load(content, "cpu")["odd"].tobytes() == TENSORS["odd"][2]
    with pytest.raises(safetensors.FormatError, match=r"^bytes: cut short"):
        safetensors.load(content[:-1])


def test_types_and_devices_that_torch_lacks(
    torch: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "complex64")
    with pytest.raises(TypeError, match="'complex': this torch has no C64"):
        safetensors.load_file(path, framework="pt")
    with pytest.raises(ValueError, match="device: 'mps' is neither cpu nor cuda:N"):
        ours.load_file(path, "mps")
    assert ours.torch_device(3) == "cuda:3"


def test_pairs_of_small_floats(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        monkeypatch.setattr(torch, "float4_e2m1fn_x2", torch.uint8, raising=False)
    path = tmp_path / "m.safetensors"
    for shape, size in ([3, 4], 6), ([2, 3, 1], 3):
        header = {"x": {"dtype": "F4", "shape": shape, "data_offsets": [0, size]}}
        raw = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(range(size)))
        if shape[-1] % 2 == 0:
            tensor = safetensors.load_file(path, framework="pt")["x"]
            assert list(tensor.shape) == [3, 2]
            assert tensor.view(torch.uint8).tolist() == [[0, 1], [2, 3], [4, 5]]
        else:
            with pytest.raises(TypeError, match="does not end with pairs"):
                safetensors.load_file(path, framework="pt")


class Reference:
    """What stands for the package safetensors and for a library that uses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.package = types.ModuleType("safetensors")
        self.torch = types.ModuleType("safetensors.torch")
        self.library = types.ModuleType("library_of_models")

        def safe_open(*arguments: Any, **options: Any) -> str:
            self.asked.append((*arguments, options))
            return "theirs"

        def load_file(*arguments: Any, **options: Any) -> str:
            self.asked.append((*arguments, options))
            return "theirs"

        def load(*arguments: Any) -> str:
            self.asked.append(arguments)
            return "theirs"

        self.originals = {"safe_open": safe_open, "load_file": load_file, "load": load}
        vars(self.package).update(safe_open=safe_open, torch=self.torch, SafetensorError=OSError)
        vars(self.torch).update(self.originals)
        vars(self.library).update(safe_open=safe_open, _safe_load=load_file)
        for module in (self.package, self.torch, self.library):
            monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture
def reference(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Reference:
    """A package safetensors that only says that it was asked."""
    return Reference(monkeypatch)


def test_libraries_load_with_penstock_inside_the_context(
    torch: Any, reference: Reference, path: Path
) -> None:
    library = reference.library
    with safetensors.installed():
        opened = library.safe_open(str(path), framework="pt", device="cpu", backend="mmap")
        assert isinstance(opened, safetensors.SafetensorsFile)
        check(torch, "half", opened.get_slice("half")[...])
        opened.__exit__(None, None, None)
        for loaded in (
            library._safe_load(path, device="cpu", backend="mmap"),
            reference.torch.load_file(path),
            reference.torch.load(path.read_bytes()),
        ):
            check(torch, "odd", loaded["odd"])
        late = types.ModuleType("late_library")
        sys.modules["late_library"] = late
        vars(late).update(opener=reference.package.safe_open)
        # A type too, as libraries name it in annotations.
        assert isinstance(library.safe_open, type)
        assert reference.asked == []
    try:
        assert late.opener is reference.originals["safe_open"]
    finally:
        del sys.modules["late_library"]
    assert vars(library)["safe_open"] is reference.originals["safe_open"]
    assert vars(library)["_safe_load"] is reference.originals["load_file"]
    for name, original in reference.originals.items():
        assert vars(reference.torch)[name] is original
    assert vars(reference.package)["safe_open"] is reference.originals["safe_open"]


def test_other_frameworks_and_devices_go_to_safetensors(reference: Reference, path: Path) -> None:
    with safetensors.installed():
        assert reference.library.safe_open(path, "np") == "theirs"
        assert reference.library.safe_open(path, framework="pt", device="mps") == "theirs"
        assert reference.library._safe_load(path, device="xpu:0", backend="pread") == "theirs"
    assert reference.asked == [
        (path, "np", "cpu", {}),
        (path, "pt", "mps", {}),
        (path, "xpu:0", {"backend": "pread"}),
    ]


def test_contexts_nest_and_end_with_errors(reference: Reference, path: Path) -> None:
    with safetensors.installed():
        inner = safetensors.installed("cuda:1")
        inner.__enter__()
        assert installation._chosen("cpu") == "cuda:1"
        assert installation._chosen("cuda:0") == "cuda:0"
        assert not inner.__exit__(RuntimeError, RuntimeError("mine"), None)
        assert installation._chosen("cpu") == "cpu"
        assert vars(reference.library)["safe_open"] is installation.safe_open
        with pytest.raises(ValueError, match="device: 'tpu'"), safetensors.installed("tpu"):
            pass
    assert vars(reference.library)["safe_open"] is reference.originals["safe_open"]


def test_reference_gives_the_same_torch_tensors(path: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("safetensors.torch")
    expected = theirs.load_file(path)
    for loaded in (ours.load_file(path), ours.load(path.read_bytes())):
        assert loaded.keys() == expected.keys()
        assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    again = tmp_path / "again.safetensors"
    ours.save_file(loaded, again, {"format": "pt"})
    assert ours.save(loaded, {"format": "pt"}) == again.read_bytes()
    assert torch.equal(theirs.load_file(again)["odd"], expected["odd"])
    # Each tensor has a storage of its own, so that one of them can be saved.
    assert loaded["odd"].untyped_storage().nbytes() == 21


def test_model_of_transformers_is_the_same_through_penstock(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    transformers.BertModel(config).to(torch.bfloat16).save_pretrained(
        tmp_path, max_shard_size="1MB"
    )
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    expected = transformers.AutoModel.from_pretrained(tmp_path).state_dict()
    opened: list[Any] = []
    init = installation.safe_open.__init__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        opened.append(arguments)
        init(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installation.safe_open, "__init__", counted)
        with safetensors.installed():
            loaded = transformers.AutoModel.from_pretrained(tmp_path).state_dict()
    assert len(opened) > 1
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "--rounds", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{len(expected)} tensors" in told
    assert told.endswith("equal\n")
