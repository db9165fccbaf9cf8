"""What a call from Python costs."""

import statistics
import time

import numpy as np

import unmetal


def test_a_small_kernel_costs_less_than_10_microseconds(device, queue, image_of, poisoned):
    """Time of a whole encode of one pixel, that of the C++ call included."""
    pool = unmetal.CNNPoolingMax(device, 1, 1)
    source, result = image_of(np.ones((1, 1, 1), np.float32)), poisoned(1, 1, 1)
    microseconds = []
    for _ in range(21):
        with queue.command_buffer() as command_buffer:
            encode = pool.encode
            start = time.perf_counter()
            for _ in range(200):
                encode(command_buffer, source, result)
            microseconds.append((time.perf_counter() - start) / 200 * 1e6)
    print(f"{statistics.median(microseconds):.2f} microseconds")
    assert min(microseconds) < 10
