"""Programs of other people on a CUDA device: torch, CuPy and JAX beside penstock, a line for each.

Run by hand with a Python that has torch, CuPy and JAX; exits 1 when a case failed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch  # type: ignore[import-not-found]

import penstock

SIZE = 8 << 20
LIMIT_S = 60

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "numbers"
numbers = torch.arange(SIZE // 8, dtype=torch.int64)
path.write_bytes(numbers.numpy().tobytes())
on_device = numbers.cuda()


def busy(side: torch.cuda.Stream | None = None) -> torch.Tensor:
    """Queue some 20 ms of work on the current stream, or on `side`."""
    with torch.cuda.stream(side or torch.cuda.current_stream()):
        matrix = torch.ones(4096, 4096, device="cuda")
        for _ in range(20):
            matrix = matrix @ matrix * 1e-4
    return matrix


def pinned_memory() -> None:
    """Small pinned pieces of torch's lie before ours."""
    kept = [torch.zeros(count).pin_memory() for count in (1, 100, 1000)]
    kept.append(torch.tensor(float(on_device.sum())))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(numbers[:1000]), batch_size=10, pin_memory=True
    )
    kept.extend(batch for (batch,) in loader)
    into = torch.zeros_like(on_device)
    with penstock.open(path) as file:
        assert file.read(into) == SIZE
    assert torch.equal(into, on_device)
    assert all(not piece.any() for piece in kept[:3])


def reads_behind_queued_work() -> None:
    """`zeros` that is still queued must not overwrite what is read."""
    wrong = 0
    with penstock.open(path) as file:
        for turn in range(20):
            side = torch.cuda.Stream() if turn % 2 else None
            kept = busy(side)
            with torch.cuda.stream(side or torch.cuda.current_stream()):
                into = torch.full_like(on_device, -1)
                count = file.pread(into).result() if turn % 4 < 2 else file.read(into)
                assert count == SIZE
            torch.cuda.synchronize()
            wrong += not torch.equal(into, on_device)
            del kept
    assert wrong == 0, f"{wrong} of 20"


def writes_of_what_is_being_computed() -> None:
    out = Path(folder.name) / "out"
    wrong = 0
    with penstock.open(out, "w+") as file:
        for turn in range(20):
            side = torch.cuda.Stream() if turn % 2 else None
            with torch.cuda.stream(side or torch.cuda.current_stream()):
                kept = busy()
                computed = on_device + turn
                file.pwrite(computed).result() if turn % 4 < 2 else file.write(computed)
            wrong += out.read_bytes() != (numbers + turn).numpy().tobytes()
            del kept
    assert wrong == 0, f"{wrong} of 20"


def small_reads_behind_queued_work() -> None:
    with penstock.open(path) as file:
        for _ in range(10):
            kept = busy()
            into = torch.full((64,), -1, device="cuda", dtype=torch.int64)
            assert file.read(into) == 512
            torch.cuda.synchronize()
            assert torch.equal(into, on_device[:64])
            del kept


def a_named_stream_and_none() -> None:
    side = torch.cuda.Stream()
    with penstock.open(path) as file:
        with torch.cuda.stream(side):
            kept = busy()
            into = torch.full_like(on_device, -1)
        assert file.read(into, stream=side) == SIZE
        assert side.query(), "the read did not wait for the stream that was named"
        assert torch.equal(into, on_device)
        torch.cuda.synchronize()
        into.zero_()
        torch.cuda.synchronize()
        kept = busy()
        assert file.read(into, stream=-1) == SIZE
        assert not torch.cuda.current_stream().query(), "stream=-1 waited"
        torch.cuda.synchronize()
        assert torch.equal(into, on_device)
        del kept


def cost_where_nothing_is_queued() -> None:
    into = torch.zeros(SIZE // 8, device="cuda", dtype=torch.int64)
    torch.cuda.synchronize()
    with penstock.open(path) as file:
        for size in (4096, 1 << 20):
            times: dict[int | None, list[float]] = {None: [], -1: []}
            for turn in range(400):
                for stream in (None, -1):
                    began = time.perf_counter()
                    file.read(into, size, stream=stream)
                    if turn >= 10:
                        times[stream].append(time.perf_counter() - began)
            ordered, free = (statistics.median(times[stream]) * 1e6 for stream in (None, -1))
            print(f"    {size} bytes: {ordered:.1f} us, {free:.1f} with stream=-1")


def reads_inside_a_capture_are_refused_by_name() -> None:
    """The capture goes on; the read says why it cannot be part of it."""
    static = torch.ones(1000, device="cuda")
    into = torch.zeros(SIZE // 8, device="cuda", dtype=torch.int64)
    torch.cuda.synchronize()
    with penstock.open(path) as file:
        graph = torch.cuda.CUDAGraph()
        refused = ""
        with torch.cuda.graph(graph):
            result = static * 2
            try:
                file.read(into)
            except OSError as error:
                refused = str(error)
        assert "captured" in refused, refused
        graph.replay()
        torch.cuda.synchronize()
        assert float(result[0]) == 2.0
        assert file.read(into) == SIZE
        assert torch.equal(into, on_device)


def blocking_streams_are_waited_for() -> None:
    """Work on a stream that synchronises with the legacy default stream."""
    import cupy  # type: ignore[import-not-found]

    stream = cupy.cuda.Stream(non_blocking=False)
    memory = penstock.empty(SIZE, "cuda:0")
    view = torch.as_tensor(memory, device="cuda").view(torch.int64)
    torch.cuda.synchronize()
    with penstock.open(path) as file:
        for _ in range(5):
            with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
                kept = busy(torch.cuda.ExternalStream(stream.ptr))
                view.fill_(-1)
            assert file.read(memory) == SIZE
            torch.cuda.synchronize()
            assert torch.equal(view, on_device)
            del kept


def cupy_arrays() -> None:
    import cupy

    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_async)
    for allocator in (cupy.get_default_memory_pool().malloc, pool.malloc):
        cupy.cuda.set_allocator(allocator)
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
            with stream, penstock.open(path) as file:
                matrix = cupy.ones((4096, 4096), dtype=cupy.float32)
                for _ in range(20):
                    matrix = matrix @ matrix * 1e-4
                into = cupy.full(SIZE // 8, -1, dtype=cupy.int64)
                assert file.pread(into).result() == SIZE
                stream.synchronize()
                assert bool((into == cupy.arange(SIZE // 8)).all())


def jax_arrays() -> None:
    program = (
        "import jax, jax.numpy as jnp, penstock, numpy, sys\n"
        "made = jnp.arange(100000) * 2\n"
        "with penstock.open(sys.argv[1], 'w') as file: file.write(made)\n"
        "assert numpy.fromfile(sys.argv[1], made.dtype).tolist() == made.tolist()\n"
    )
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    alone(program, str(Path(folder.name) / "jax"), environment=environment)


def alone(program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-600:]
    return done.stdout


READ = (
    f"into = torch.zeros({SIZE} // 8, dtype=torch.int64, device='cuda')\n"
    f"with penstock.open(sys.argv[1]) as file: assert file.read(into) == {SIZE}\n"
    f"assert torch.equal(into.cpu(), torch.arange({SIZE} // 8))\n"
)


def torch_first_and_last() -> None:
    alone("import sys, penstock, torch\n" + READ, str(path))
    alone("import sys, torch\ntorch.zeros(1).cuda()\nimport penstock\n" + READ, str(path))


def import_sets_what_cuda_reads_when_it_starts() -> None:
    program = "import os, penstock; print(os.environ['CUDA_DEVICE_MAX_COPY_CONNECTIONS'])"
    assert alone(program).strip() == "32"


def loading_modes_and_allocators() -> None:
    for environment in (
        {"CUDA_MODULE_LOADING": "EAGER"},
        {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        {"CUDA_LAUNCH_BLOCKING": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ):
        alone("import sys, penstock, torch\n" + READ, str(path), environment=environment)


def graphs_are_captured_beside_reads() -> None:
    """A capture in global mode beside reads of another thread."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            mine = torch.zeros(SIZE // 8, device="cuda", dtype=torch.int64)
            torch.cuda.synchronize()
            with penstock.open(path) as file:
                started.set()
                while not stop.is_set():
                    assert file.read(mine) == SIZE
        except BaseException as error:
            failures.append(error)
            started.set()

    started = threading.Event()
    reader = threading.Thread(target=read)
    static = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    reader.start()
    started.wait()
    try:
        for _ in range(20):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = static * 2
            graph.replay()
            torch.cuda.synchronize()
            assert float(result[0]) == 2.0
    finally:
        stop.set()
        reader.join()
    assert not failures, failures


def data_loader_workers() -> None:
    """Worker processes that read with penstock into host memory, beside a parent on the GPU."""

    class Parts(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> torch.Tensor:
            part = torch.empty(1024, dtype=torch.int64)
            with penstock.open(path) as file:
                file.read(part, file_offset=index * 8192)
            return part

    loader = torch.utils.data.DataLoader(
        Parts(), batch_size=8, num_workers=2, pin_memory=True, timeout=LIMIT_S
    )
    with penstock.open(path) as file:
        into = torch.zeros_like(on_device)
        file.read(into)
        got = torch.cat([batch.flatten() for batch in loader])
    assert torch.equal(got, numbers[: got.numel()])


def a_forked_child_reads() -> None:
    import numpy

    child = os.fork()
    if child == 0:
        try:
            into = numpy.zeros(SIZE // 8, dtype=numpy.int64)
            with penstock.open(path) as file:
                file.read(into)
            os._exit(0 if int(into[-1]) == SIZE // 8 - 1 else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def freed_memory_is_an_error() -> None:
    into = penstock.empty(4096, "cuda:0")
    address = into.address
    into.free()

    class Stale:
        def __init__(self) -> None:
            self.__cuda_array_interface__ = {
                "shape": (4096,),
                "typestr": "|u1",
                "data": (address, False),
                "version": 3,
            }

    try:
        with penstock.open(path) as file:
            file.read(Stale())
    except OSError:
        return
    raise AssertionError("it was read into")


def two_devices() -> None:
    if torch.cuda.device_count() < 2:
        print("    one device here: not run")
        return
    with penstock.open(path) as file:
        for number in (1, 0, 1):
            with torch.cuda.device(number):
                kept = torch.ones(4096, 4096, device=f"cuda:{number}") @ torch.ones(
                    4096, 4096, device=f"cuda:{number}"
                )
                into = torch.full((SIZE // 8,), -1, dtype=torch.int64, device=f"cuda:{number}")
                assert file.pread(into).result() == SIZE
                assert torch.equal(into.cpu(), numbers)
                del kept


def another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        print("    one device here: not run")
        return
    into = torch.empty(SIZE // 8, dtype=torch.int64, device="cuda:1")
    matrix = torch.ones(4096, 4096, device="cuda:1")
    with penstock.open(path) as file:
        for _ in range(10):
            with torch.cuda.device(1):
                for _ in range(20):
                    matrix = matrix @ matrix * 1e-4
                into.fill_(-1)
            assert file.read(into) == SIZE
            torch.cuda.synchronize(1)
            assert torch.equal(into.cpu(), numbers)


CASES: list[Callable[[], None]] = [
    pinned_memory,
    reads_behind_queued_work,
    small_reads_behind_queued_work,
    writes_of_what_is_being_computed,
    a_named_stream_and_none,
    cost_where_nothing_is_queued,
    graphs_are_captured_beside_reads,
    reads_inside_a_capture_are_refused_by_name,
    blocking_streams_are_waited_for,
    import_sets_what_cuda_reads_when_it_starts,
    torch_first_and_last,
    loading_modes_and_allocators,
    cupy_arrays,
    jax_arrays,
    data_loader_workers,
    a_forked_child_reads,
    freed_memory_is_an_error,
    two_devices,
    another_device_than_the_current_one,
]


def main() -> int:
    failed = 0
    for case in CASES:
        began = time.perf_counter()
        try:
            case()
            verdict = "passed"
        except Exception as error:
            verdict, failed = f"FAILED: {type(error).__name__}: {error}", failed + 1
        print(f"{case.__name__}: {verdict} ({time.perf_counter() - began:.1f} s)", flush=True)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
