"""Data sources written in Python, and what float32 may differ from float64, for the tests of layers and graphs."""

import numpy as np

import unmetal


class Filters(unmetal.CNNConvolutionDataSource):
    """Weights of a convolution, OHWI."""

    def __init__(self, weights, bias_terms=None, inputs=None, **fields):
        super().__init__()
        outputs, height, width, inputs_of_group = weights.shape
        self.weights = weights
        self.bias_terms = bias_terms
        self.label = "filters"
        self.descriptor = unmetal.CNNConvolutionDescriptor(width, height, inputs or inputs_of_group, outputs)
        descriptor = self.descriptor
        for name, value in fields.items():
            setattr(descriptor, name, value)
        self.calls = []

    def load(self):
        self.calls.append("load")
        return True

    def purge(self):
        self.calls.append("purge")


def correlation(source, weights, size, offset=(0, 0), stride=(1, 1), dilation=(1, 1), groups=1):
    """CNNConvolution without bias, as a loop over taps in float64; pairs are (y, x). The second result is the gradient: a
    function from dL/d(result) to dL/d(source) and dL/d(weights)."""
    height, width, channels = source.shape
    outputs, rows, columns, inputs = weights.shape
    taps = [(q, p) for q in range(rows) for p in range(columns)]

    def places(extent, count, kernel, tap, axis):
        first = offset[axis] - ((kernel - 1) * dilation[axis] + 1) // 2 + dilation[axis] * tap
        place = first + stride[axis] * np.arange(count)
        return place, (place >= 0) & (place < extent)

    def at(q, p):
        y, inside_y = places(height, size[0], rows, q, 0)
        x, inside_x = places(width, size[1], columns, p, 1)
        return np.clip(y, 0, height - 1), np.clip(x, 0, width - 1), np.outer(inside_y, inside_x)[..., None]

    result = np.zeros((*size, outputs))
    of_group = outputs // groups
    for q, p in taps:
        y, x, inside = at(q, p)
        values = source[np.ix_(y, x)] * inside
        for g in range(groups):
            chosen = slice(g * of_group, (g + 1) * of_group)
            result[..., chosen] += values[..., g * inputs:(g + 1) * inputs] @ weights[chosen, q, p].T

    def gradient(incoming):
        of_source, of_weights = np.zeros(source.shape), np.zeros(weights.shape)
        for q, p in taps:
            y, x, inside = at(q, p)
            values = source[np.ix_(y, x)] * inside
            for g in range(groups):
                chosen, read = slice(g * of_group, (g + 1) * of_group), slice(g * inputs, (g + 1) * inputs)
                of_weights[chosen, q, p] += np.einsum("yxo,yxi->oi", incoming[..., chosen], values[..., read])
                back = np.zeros_like(values)
                back[..., read] = incoming[..., chosen] @ weights[chosen, q, p]
                np.add.at(of_source, np.ix_(y, x), back * inside)
        return of_source, of_weights

    return result, gradient


def close(found, expected, magnitude, terms):
    """Whether float32 sums of `terms` products lie where they may. `magnitude`: the sum of the products' magnitudes."""
    unit = np.finfo(np.float32).eps
    return bool(np.all(np.abs(np.asarray(found) - expected) <= (terms + 2) * unit * (np.abs(magnitude) + unit)))


def floats(buffer):
    """A buffer's elements, shared."""
    return buffer.contents.view(np.float32)
