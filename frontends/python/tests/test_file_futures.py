"""Goal: a penstock.Future behaves as a concurrent.futures.Future, can be awaited, and reports.

Reads are held under way by a throttle: each storage operation takes at least so long.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock

MIB = 1 << 20
DATA = bytes(range(256)) * (4 * MIB // 256)
LATENCIES_US = (200_000, 1_000_000, 5_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def slow(path: Path) -> Iterator[penstock.File]:
    with penstock.open(path, threads=1, throttle_latency_us=LATENCIES_US[0]) as file:
        yield file


class TooEarly(Exception):  # noqa: N818 (it is a signal to try again)
    """A read was done before the test had asked what it wanted to ask meanwhile."""


def see_under_way(*futures: penstock.Future) -> None:
    """Must follow what only means something while `futures` are under way."""
    if any(future.done() for future in futures):
        raise TooEarly


def patiently(test: Callable[[penstock.File], None]) -> Callable[[Path], None]:
    """Repeat `test` with slower files where this machine stood still in the middle of it."""

    def repeated(path: Path) -> None:
        for latency_us in LATENCIES_US:
            with penstock.open(path, threads=1, throttle_latency_us=latency_us) as slow:
                try:
                    return test(slow)
                except TooEarly:
                    continue
        # Then nothing was tested: what is asked of a read under way means nothing of one done.
        pytest.skip("each read was done before it could be asked: this machine stood still")

    repeated.__doc__ = test.__doc__
    return repeated


@patiently
def test_states_of_a_read(slow: penstock.File) -> None:
    future = slow.pread(bytearray(100))
    running, cancelled, shown = future.running(), future.cancelled(), repr(future)
    see_under_way(future)
    assert (running, cancelled) == (True, False)
    assert "under way" in shown
    try:
        _ = future.report
    except concurrent.futures.InvalidStateError:
        pass
    else:
        raise TooEarly
    assert future.result() == future.get() == 100
    assert future.done()
    assert not future.running()
    assert future.exception() is None
    assert not future.cancel()
    assert repr(future).endswith(", done>")
    assert future.report.bytes == 100


@patiently
def test_timeouts(slow: penstock.File) -> None:
    future = slow.pread(bytearray(100))
    told: list[BaseException] = []
    for timeout in (0, 0.001, -1):
        for ask in (future.result, future.exception):
            try:
                ask(timeout)
            except TimeoutError as error:
                told.append(error)
    see_under_way(future)
    assert len(told) == 6
    assert all(isinstance(error, concurrent.futures.TimeoutError) for error in told)
    assert "still under way" in str(told[0])
    with pytest.raises(ValueError, match="not a number"):
        future.result(float("nan"))
    assert future.result(float("inf")) == 100


def test_cancelling_what_has_not_begun(slow: penstock.File) -> None:
    buffers = [bytearray(2 * MIB) for _ in range(20)]
    futures = [slow.pread(buffer, cache="bypass") for buffer in buffers]
    cancelled = [future for future in reversed(futures) if future.cancel()]
    assert cancelled, "everything had begun"
    for future in cancelled:
        assert future.cancel()
        assert future.done()
        assert future.cancelled()
        assert repr(future).endswith(", cancelled>")
        for ask in (future.result, future.exception):
            with pytest.raises(concurrent.futures.CancelledError, match="was cancelled"):
                ask()
        assert future.report.bytes == 0
    for future, buffer in zip(futures, buffers, strict=True):
        if future.cancelled():
            assert buffer == bytes(2 * MIB)
            buffer.extend(b"it is free again")
        else:
            assert future.result() == 2 * MIB
            assert buffer == DATA[: 2 * MIB]


def test_stopping_what_runs(path: Path) -> None:
    with penstock.open(path, threads=1, throttle_bandwidth_mbs=20) as slow:
        buffer = bytearray(4 * MIB)
        pieces = [(memoryview(buffer)[at : at + 65536], at) for at in range(0, 4 * MIB, 65536)]
        future = slow.preadv(pieces)
        time.sleep(0.02)
        future.stop()
        begin = time.monotonic()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result()
        assert future.report.bytes < 4 * MIB or time.monotonic() - begin < 60
        assert sum(future.report.routes.values()) == future.report.bytes


@patiently
def test_callbacks(slow: penstock.File) -> None:
    told: list[tuple[str, penstock.Future, int]] = []
    here = threading.get_ident()
    future = slow.pread(bytearray(100))
    both = threading.Event()

    def note(name: str) -> Any:
        def callback(ended: penstock.Future) -> None:
            told.append((name, ended, threading.get_ident()))
            if name == "second":
                both.set()

        return callback

    future.add_done_callback(note("first"))
    future.add_done_callback(note("second"))
    see_under_way(future)
    assert both.wait(60)
    assert [(name, ended) for name, ended, _ in told] == [("first", future), ("second", future)]
    assert all(thread != here for _, _, thread in told)
    future.add_done_callback(note("late"))
    assert told[2] == ("late", future, here)


def test_a_callback_is_called_when_nobody_holds_the_future(slow: penstock.File) -> None:
    results: list[int] = []
    called = threading.Event()

    def callback(future: penstock.Future) -> None:
        results.append(future.result())
        called.set()

    slow.pread(bytearray(100)).add_done_callback(callback)
    gc.collect()
    assert called.wait(60)
    assert results == [100]


def test_what_a_callback_raises_is_told_and_harms_nobody(
    slow: penstock.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException | None] = []
    monkeypatch.setattr("sys.unraisablehook", lambda event: told.append(event.exc_value))
    called = threading.Event()
    future = slow.pread(bytearray(100))
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(lambda _: called.set())
    assert called.wait(60)
    assert future.result() == 100
    while len(told) < 1:
        time.sleep(0.01)
    future.add_done_callback(lambda _: 1 / 0)
    assert [type(error) for error in told] == [ZeroDivisionError] * 2
    monkeypatch.undo()


def test_a_callback_may_read(slow: penstock.File) -> None:
    second: list[int] = []
    called = threading.Event()
    buffer = bytearray(100)

    def callback(_: penstock.Future) -> None:
        second.append(slow.read(buffer, None, 1000))
        called.set()

    slow.pread(bytearray(100)).add_done_callback(callback)
    assert called.wait(60)
    assert second == [100]
    assert buffer == DATA[1000:1100]


def in_callback(slow: penstock.File, ask: Callable[[], object]) -> object:
    """Return what `ask` returns or raises as the callback of a read."""
    told: list[object] = []
    called = threading.Event()

    def callback(_: penstock.Future) -> None:
        try:
            told.append(ask())
        except RuntimeError as error:
            told.append(error)
        called.set()

    slow.pread(bytearray(100)).add_done_callback(callback)
    assert called.wait(60), "the callback did not return"
    return told[0]


def test_a_callback_may_wait_for_other_reads(slow: penstock.File) -> None:
    def ask() -> object:
        reads = [slow.pread(bytearray(10), None, i) for i in range(3)]
        in_order = list(penstock.as_completed(reads))
        more = slow.pread(bytearray(10))
        first = penstock.wait([more, *reads], return_when="FIRST_COMPLETED")
        return (
            set(in_order) == set(reads),
            first == (set(reads), {more}) or more.done(),
            penstock.wait([more], 0.0)[0] == {more} or not more.done(),
            penstock.wait([more]) == ({more}, set()),
            more.result(),
        )

    assert in_callback(slow, ask) == (True, True, True, True, 10)


def test_a_callback_that_awaits_is_told_what_to_do_instead(slow: penstock.File) -> None:
    async def await_read() -> int:
        return await slow.pread(bytearray(10))

    told = in_callback(slow, lambda: asyncio.run(await_read()))
    assert isinstance(told, RuntimeError)
    assert "use result()" in str(told)


def test_ctrl_c_ends_waiting_for_many(path: Path) -> None:
    with penstock.open(path, threads=1, throttle_latency_us=LATENCIES_US[2]) as slow:
        reads = [slow.pread(bytearray(10), None, i) for i in range(5)]
        interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                penstock.wait(reads)
        finally:
            interrupt.cancel()
        for read in reads:
            read.stop()


def test_awaiting(slow: penstock.File, path: Path) -> None:
    async def reads() -> list[int]:
        one = await slow.pread(bytearray(100))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.create_task(tick())
        many = await asyncio.gather(*(slow.pread(bytearray(10), None, i) for i in range(3)))
        ticker.cancel()
        assert ticks > 3, "the loop stood still while it waited"
        done = penstock.open(path).pread(bytearray(7))
        done.result()
        return [one, *many, await done]

    assert asyncio.run(reads()) == [100, 10, 10, 10, 7]


def test_a_cancelled_task_stops_its_read(path: Path) -> None:
    async def cancelled(slow: penstock.File) -> penstock.Future:
        future = slow.pread(bytearray(4 * MIB))

        async def waiter() -> None:
            await future

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiter(), 0.02)
        return future

    with penstock.open(path, threads=1, throttle_bandwidth_mbs=20) as slow:
        future = asyncio.run(cancelled(slow))
        assert penstock.wait([future]) == ({future}, set())


@pytest.mark.parametrize("cancellations", [1, 3])
def test_nothing_is_written_when_a_cancelled_await_has_ended(
    path: Path, cancellations: int
) -> None:
    buffer = bytearray(4 * MIB)

    async def cancelled(slow: penstock.File) -> bytes:
        future = slow.pread(buffer, cache="bypass")

        async def waiter() -> None:
            await future

        task = asyncio.create_task(waiter())
        await asyncio.sleep(0.05)
        see_under_way(future)
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0.001)
        see_under_way(future)
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        assert task.cancelled()
        assert future.done()
        assert ticks > 0, "the loop stood still while it waited"
        return bytes(buffer)

    for bandwidth_mbs in (10, 2, 1):
        with penstock.open(path, threads=1, throttle_bandwidth_mbs=bandwidth_mbs) as slow:
            try:
                left = asyncio.run(cancelled(slow))
            except TooEarly:
                continue
            time.sleep(0.5)
            assert buffer == left
            return
    # As in patiently().
    pytest.skip("each read was done before it could be cancelled: this machine stood still")


def test_a_cancelled_await_does_not_wait_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.futures.STOP_LIMIT_SECONDS", 0.05)

    async def cancelled(slow: penstock.File) -> penstock.Future:
        future = slow.pread(bytearray(100))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.05)
        return future

    with penstock.open(path, threads=1, throttle_latency_us=LATENCIES_US[1]) as slow:
        begin = time.monotonic()
        future = asyncio.run(cancelled(slow))
        if time.monotonic() - begin < 0.9:
            assert not future.done()


def test_a_loop_that_is_closed_harms_nobody(slow: penstock.File) -> None:
    future = slow.pread(bytearray(100))

    async def leave() -> None:
        async def waiter() -> None:
            await future

        task = asyncio.create_task(waiter())
        await asyncio.sleep(0.01)
        del task

    asyncio.run(leave())  # cancels the task that still waits, and that stops the read
    assert penstock.wait([future]) == ({future}, set())


@patiently
def test_wait(slow: penstock.File) -> None:
    quick = penstock.open(slow.name).pread(bytearray(100))
    quick.result()
    late = slow.pread(bytearray(100))
    first = penstock.wait([quick, late], return_when="FIRST_COMPLETED")
    in_time = penstock.wait([quick, late], timeout=0.001)
    see_under_way(late)
    assert first == in_time == ({quick}, {late})
    assert penstock.wait([quick, late, late]) == ({quick, late}, set())
    assert penstock.wait([]) == (set(), set())
    with pytest.raises(ValueError, match="return_when"):
        penstock.wait([], return_when="SOON")


@patiently
def test_as_completed(slow: penstock.File) -> None:
    late = slow.pread(bytearray(100))
    quick = penstock.open(slow.name).pread(bytearray(100))
    quick.result()
    see_under_way(late)
    assert list(penstock.as_completed([late, quick])) == [quick, late]
    late = slow.pread(bytearray(100))
    told = ""
    try:
        list(penstock.as_completed([late], timeout=0.001))
    except TimeoutError as error:
        told = str(error)
    see_under_way(late)
    assert told == "1 of 1 reads and writes are still under way"


def test_several_wait_for_one_read(slow: penstock.File) -> None:
    future = slow.pread(bytearray(100))
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(future.result())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [100] * 8


def test_others_run_while_one_waits(slow: penstock.File) -> None:
    ticks = 0
    ended = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not ended.wait(0.005):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    slow.read(bytearray(100))
    slow.read(bytearray(2 * MIB))
    slow.pread(bytearray(100)).result()
    ended.set()
    thread.join()
    assert ticks > 5


def test_a_file_may_be_closed_while_it_is_read(path: Path) -> None:
    slow = penstock.open(path, throttle_latency_us=LATENCIES_US[0])
    buffer = bytearray(2 * MIB)
    future = slow.pread(buffer)
    slow.close()
    slow.close()
    assert future.result() == 2 * MIB
    assert buffer == DATA[: 2 * MIB]


def test_ten_thousand_in_flight(path: Path) -> None:
    count = 10_000
    with penstock.open(path, threads=2, throttle_latency_us=20_000) as slow:
        buffers = [bytearray(16) for _ in range(count)]
        futures = [slow.pread(buffer, None, 16 * i) for i, buffer in enumerate(buffers)]
        waiting = sum(not future.done() for future in futures)
        assert waiting > count // 2, "nothing was in flight"
        dropped = sum(future.cancel() for future in futures[100:-100])
        assert dropped > 0
        for i, (future, buffer) in enumerate(zip(futures, buffers, strict=True)):
            if not future.cancelled():
                assert future.result() == 16
                assert buffer == DATA[16 * i : 16 * i + 16]
        assert sum(future.cancelled() for future in futures) == dropped


def test_futures_are_not_leaked(path: Path) -> None:
    file = penstock.open(path)
    alive = []
    for _ in range(100):
        future = file.pread(bytearray(100))
        alive.append(weakref.ref(future))
        future.result()
    del future
    gc.collect()
    assert not any(one() for one in alive)
