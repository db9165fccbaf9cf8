"""Dropout of unmetal.nn.functional draws another mask each time, which a seed makes the same."""

import threading

import numpy as np
import pytest

import unmetal
import unmetal.nn.functional as F

x = np.ones((50, 40), np.float32)


def mask(**arguments):
    return F.dropout(x, **arguments) != 0


def test_each_call_draws_another_mask():
    masks = [mask() for _ in range(8)]
    assert all(not np.array_equal(one, other) for index, one in enumerate(masks) for other in masks[:index])
    assert all(abs(each.mean() - 0.5) < 0.06 for each in masks)


def test_the_generator_starts_again():
    first, other = [], []
    for drawn, seed in ((first, 7), (other, 8), (first, 7)):
        unmetal.manual_seed(seed)
        drawn.append([mask() for _ in range(3)])
    assert np.array_equal(first[0], first[1]) and not np.array_equal(first[0], other[0])
    for seed in (0, -1, 2 ** 64 - 1, -2 ** 63, np.int64(3)):
        unmetal.manual_seed(seed)
        seeds = [unmetal.next_seed() for _ in range(1000)]
        assert len(set(seeds)) == 1000 and all(0 <= number < 2 ** 64 for number in seeds)
    for wrong in (2 ** 64, -2 ** 63 - 1):
        with pytest.raises(unmetal.ArgumentError, match="manual_seed: seed is"):
            unmetal.manual_seed(wrong)
    with pytest.raises(TypeError):
        unmetal.manual_seed(1.5)


def test_seeds_of_ones_own_leave_the_generator_alone():
    unmetal.manual_seed(3)
    expected = mask()
    unmetal.manual_seed(3)
    assert np.array_equal(mask(seed=5), mask(seed=5)) and np.array_equal(mask(), expected)
    F.dropout(x, training=False)
    F.dropout(x, 1.0)


def test_threads_draw_different_numbers():
    unmetal.manual_seed(1)
    drawn = [[] for _ in range(8)]
    threads = [threading.Thread(target=lambda own=own: own.extend(unmetal.next_seed() for _ in range(2000))) for own in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = sum(drawn, [])
    unmetal.manual_seed(1)
    assert set(numbers) == {unmetal.next_seed() for _ in numbers} and len(set(numbers)) == len(numbers)


def test_the_gradient_needs_the_seed_of_the_mask():
    seed = unmetal.next_seed()
    y = F.dropout(x, 0.25, seed=seed)
    assert np.array_equal(F.dropout_backward(x, x, 0.25, seed=seed), y)
    with pytest.raises(unmetal.ArgumentError, match="dropout_backward: seed is None, expected the seed that dropout had"):
        F.dropout_backward(x, x)
    assert np.array_equal(F.dropout_backward(x, x, 0.0), x) and np.array_equal(F.dropout_backward(x, x, training=False), x)
    assert not F.dropout_backward(x, x, 1.0).any()
