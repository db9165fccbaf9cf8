"""Devices, queues, command buffers, buffers and encoders."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import unmetal
from unmetal import mtl
from unmetal.mtl import CommandBufferStatus

float32 = unmetal.ImageFeatureChannelFormat.Float32


@pytest.fixture
def pool(device):
    return unmetal.CNNPoolingMax(device, 3, 3)


@pytest.fixture
def image(image_of):
    return image_of(np.zeros((8, 8, 4), np.float32))


def test_a_block_commits_and_waits(queue, pool, image):
    with queue.command_buffer() as command_buffer:
        pool.encode(command_buffer, image)
        assert command_buffer.status == CommandBufferStatus.NotEnqueued
    assert command_buffer.status == CommandBufferStatus.Completed and command_buffer.error is None
    assert command_buffer.gpu_end_time >= command_buffer.gpu_start_time > 0


@pytest.fixture
def interruptible():
    """As a terminal starts a program: what runs in the background may have been told to ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("wait", ("wait_until_completed", "throw_if_failed", "__exit__"))
def test_an_interrupt_ends_a_wait(queue, wait, interruptible):
    may_end = threading.Event()
    command_buffer = queue.command_buffer()
    command_buffer.add_completed_handler(lambda done: may_end.wait(30))
    command_buffer.commit()
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        getattr(command_buffer, wait)(*(None, None, None) if wait == "__exit__" else ())
    assert time.monotonic() - began < 20
    interrupt.join()
    may_end.set()
    command_buffer.wait_until_completed()
    assert command_buffer.status == CommandBufferStatus.Completed


FULL_QUEUE = """
import signal
import unmetal
from unmetal import mtl

signal.signal(signal.SIGINT, signal.default_int_handler)
queue = mtl.new_cpu_device(1).new_command_queue(2)
first = queue.command_buffer()
first.enqueue()  # never committed: nothing behind it runs
second = unmetal.CommandBuffer(queue)
print("full", flush=True)
"""


@pytest.mark.parametrize("call", ("queue.command_buffer()", "unmetal.CommandBuffer(queue)", "second.commit_and_continue()"))
def test_an_interrupt_ends_a_wait_for_room_in_a_queue(call):
    with subprocess.Popen([sys.executable, "-c", FULL_QUEUE + call], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as child:
        try:
            assert child.stdout.readline() == "full\n"
            time.sleep(0.3)
            assert child.poll() is None, "it waits"
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=10)
        finally:
            child.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_full_queue_gives_the_next_command_buffer_when_one_has_completed(device):
    queue = device.new_command_queue(1)
    may_end = threading.Event()
    first = queue.command_buffer()
    first.add_completed_handler(lambda done: may_end.wait(30))
    first.commit()
    threading.Timer(0.3, may_end.set).start()
    with queue.command_buffer() as second:  # after several looks for signals
        assert second.status == CommandBufferStatus.NotEnqueued
    assert first.status == CommandBufferStatus.Completed


def test_counts_below_one_are_errors_about_an_argument(device):
    for wrong in (lambda: device.new_command_queue(0), lambda: mtl.new_cpu_device(0), lambda: mtl.new_cpu_device(-1),
                  lambda: setattr(device, "thread_count", 0)):
        with pytest.raises(unmetal.ArgumentError, match="Device: (max_command_buffer_count|thread_count) is .*, expected at least 1"):
            wrong()


def test_a_block_that_is_left_by_an_exception_commits_nothing(queue):
    with pytest.raises(ZeroDivisionError):
        with queue.command_buffer() as command_buffer:
            1 / 0
    assert command_buffer.status == CommandBufferStatus.NotEnqueued


def test_a_block_may_commit_itself(queue):
    with queue.command_buffer() as command_buffer:
        command_buffer.commit()
    assert command_buffer.status == CommandBufferStatus.Completed


def test_handlers_run_on_another_thread(queue):
    seen = []
    command_buffer = queue.command_buffer()
    command_buffer.label = "labelled"
    command_buffer.add_scheduled_handler(lambda buffer: seen.append(("scheduled", buffer.label)))
    command_buffer.add_completed_handler(lambda buffer: seen.append(("completed", buffer.label)))
    command_buffer.add_completed_handler(lambda buffer: seen.append(threading.get_ident()))
    command_buffer.commit()
    command_buffer.wait_until_completed()
    assert seen[:2] == [("scheduled", "labelled"), ("completed", "labelled")]
    assert seen[2] != threading.get_ident()
    with pytest.raises(unmetal.Error, match="commit"):
        command_buffer.add_completed_handler(print)


def test_what_a_handler_raises_is_the_buffers_error(queue):
    def handler(buffer):
        raise LookupError("lost in a handler")

    command_buffer = queue.command_buffer()
    command_buffer.add_completed_handler(handler)
    command_buffer.commit()
    with pytest.raises(unmetal.Error, match="lost in a handler"):
        command_buffer.throw_if_failed()
    assert command_buffer.status == CommandBufferStatus.Error
    assert "lost in a handler" in command_buffer.error.message
    with pytest.raises(unmetal.Error, match="lost in a handler"):
        with queue.command_buffer() as other:
            other.add_completed_handler(handler)


def test_other_threads_run_while_one_waits(queue):
    """A completed handler that needs the interpreter runs while the main thread waits in the library."""
    steps = []

    def handler(buffer):
        time.sleep(0.05)
        steps.append("handler")

    command_buffer = queue.command_buffer()
    command_buffer.add_completed_handler(handler)
    command_buffer.commit()
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.002)

    ticker = threading.Thread(target=tick)
    ticker.start()
    command_buffer.wait_until_completed()
    stop.set()
    ticker.join()
    assert steps == ["handler"] and len(ticks) > 3


def test_other_threads_run_while_kernels_are_encoded(device, queue):
    """Python interrupts no thread here: another one's turn comes only when an encode lets go."""
    pool, descriptor = unmetal.CNNPoolingMax(device, 2, 2), unmetal.ImageDescriptor(float32, 4, 4, 4)
    loose = unmetal.ImageBatch([unmetal.Image(device, descriptor) for _ in range(2000)])  # some milliseconds
    ticks, stop, interval = [], threading.Event(), sys.getswitchinterval()

    def tick():
        while not stop.is_set():
            ticks.append(None)
            time.sleep(0.0001)

    def ticks_during(work):
        before = len(ticks)
        work()
        return len(ticks) - before

    ticker = threading.Thread(target=tick)
    ticker.start()
    command_buffer = queue.command_buffer()
    sys.setswitchinterval(1000)
    try:
        alone = ticks_during(lambda: sum(range(200_000)))
        shared = ticks_during(lambda: [pool.encode_batch(command_buffer, loose) for _ in range(20)])
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        ticker.join()
    assert alone == 0 and shared > 0


def test_kernels_of_several_threads(device, image):
    def work():
        own, pool = device.new_command_queue(), unmetal.CNNPoolingMax(device, 3, 3)
        for _ in range(50):
            with own.command_buffer() as command_buffer:
                pool.encode(command_buffer, image)
        done.append(True)

    done = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4


def test_devices(device):
    assert device.kind == mtl.DeviceKind.CPU and device.name == "cpu" and device.description
    assert device.missing_libraries == []
    assert mtl.device_named("cpu") is device and mtl.copy_all_devices()[0] is device
    assert repr(device).startswith("<Device cpu")
    other = mtl.new_cpu_device(2)
    assert other.thread_count == 2
    other.thread_count = 1
    assert other.thread_count == 1
    with pytest.raises(unmetal.Error, match="thread_count is 0"):
        other.thread_count = 0
    assert unmetal.supports_mtl_device(device) and not unmetal.supports_mtl_device(None)
    assert unmetal.get_preferred_device(unmetal.DeviceOptions.LowPower) is device


def test_buffers_and_blits(device, queue):
    source = device.new_buffer(np.arange(4, dtype=np.float32))
    result = device.new_buffer(32)
    assert len(source) == source.length == 16 and not result.contents.any()
    with queue.command_buffer() as command_buffer:
        with command_buffer.blit_command_encoder() as blit:
            blit.fill_buffer(result, 0, 8, 255)
            blit.copy_from_buffer(source, 4, result, 16, 12)
            blit.synchronize_resource(result)
            with pytest.raises(unmetal.Error):
                blit.copy_from_buffer(source, 8, result, 0, 12)
    assert result.contents[:9].tolist() == [255] * 8 + [0]
    assert result.contents.view(np.float32)[4:7].tolist() == [1, 2, 3]
    result.contents[:] = 1
    result.did_modify_range(0, 32)
    with pytest.raises(unmetal.Error):
        result.did_modify_range(30, 4)
    contents = result.contents
    del result
    assert contents.sum() == 32
    assert device.new_buffer(4, mtl.ResourceOptions.StorageModePrivate).contents is None


def test_work_piece_by_piece(device, queue, image):
    command_buffer = unmetal.CommandBuffer(queue)
    pool = unmetal.CNNPoolingMax(device, 2, 2, 2, 2)
    with command_buffer:
        first = pool.encode(command_buffer, image)
        root = command_buffer.root_command_buffer
        command_buffer.commit_and_continue()
        root.wait_until_completed()
        pool.encode(command_buffer, first)
    assert command_buffer.status == CommandBufferStatus.Completed


def test_a_predicate_leaves_work_out(device, queue, pool, image, poisoned):
    predicate = unmetal.Predicate(device)
    results = [poisoned(8, 8, 4), poisoned(8, 8, 4)]
    for number, result in enumerate(results):
        predicate.predicate_buffer.contents[0] = number
        with unmetal.CommandBuffer(queue) as command_buffer:
            command_buffer.predicate = predicate
            pool.encode(command_buffer, image, result)
    assert np.isnan(np.asarray(results[0])).all() and not np.asarray(results[1]).any()


def test_unread_temporary_images_are_logged(queue, pool, image):
    with queue.command_buffer() as command_buffer:
        pool.encode(command_buffer, image)
    assert len(command_buffer.logs) == 1 and "read" in command_buffer.logs[0]


def test_temporary_states(device, queue):
    command_buffer = queue.command_buffer()
    state = unmetal.State.create_temporary(command_buffer, unmetal.StateResourceList([8, 16]))
    assert state.is_temporary and state.read_count == 1 and state.resource_count == 2
    assert state.buffer_size(1) == 16 and state.belongs_to(command_buffer)
    state.read_count = 0
    with pytest.raises(unmetal.Error):
        state.resource(0)
    permanent = unmetal.State(device, unmetal.StateResourceList([8]))
    assert permanent.resource(0).length == 8
    with pytest.raises(IndexError):
        permanent.resource(1)
    batch = unmetal.StateBatch(permanent, 3)
    assert len(batch) == 3 and batch.shared_state is permanent and batch.distinct() == [permanent]


def test_times_of_commands(queue, pool, image):
    pool.label = "first pool"
    with queue.command_buffer() as command_buffer:
        command_buffer.set_records_command_times(True)
        pool.encode(command_buffer, image)
        assert command_buffer.command_times == []
    time_of_pool, = command_buffer.command_times
    assert time_of_pool.label == 'CNNPoolingMax "first pool"'
    assert command_buffer.gpu_start_time <= time_of_pool.start <= time_of_pool.end <= command_buffer.gpu_end_time
    assert time_of_pool.bytes >= 8 * 8 * 4 * 4
    assert time_of_pool.operations == 0
    with pytest.raises(unmetal.Error):
        command_buffer.set_records_command_times(True)
