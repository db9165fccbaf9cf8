"""Resizing, cutting out, scaling and sampling, against matrices of weights and loops in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal
from unmetal import Image, ImageBatch, ImageEdgeMode, NormalizedRegion, ScaleTransform
from unmetal.mtl import Size


def weights_at(t, size, clamp=True):
    """Bilinear weights at positions; outside the image the edge pixel, or nothing."""
    t = np.asarray(t, np.float64)
    inside = (t >= 0) & (t <= size - 1)
    moved = np.clip(t, 0, size - 1)
    below = np.floor(moved).astype(int)
    weights = np.zeros((len(t), size))
    weights[np.arange(len(t)), below] += 1 - (moved - below)
    weights[np.arange(len(t)), np.minimum(below + 1, size - 1)] += moved - below
    return weights if clamp else weights * inside[:, None]


def positions(size, count, align, half):
    x = np.arange(count)
    if align:
        return x * (size - 1) / max(count - 1, 1)
    return np.clip((x + 0.5) * size / count - 0.5, 0, size - 1) if half else np.minimum(x * size / count, size - 1)


@pytest.mark.parametrize("align, half", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("_", range(3))
def test_resize_forward_and_gradient(align, half, _, device, queue, image_of, permanent, random):
    height, width, out_height, out_width = (int(size) for size in random.integers(1, 9, 4))
    channels = int(random.integers(1, 6))
    forward, gradient = (unmetal.NNResizeBilinear(device, out_width, out_height, align_corners=align),
                         unmetal.NNResizeBilinearGradient(device))
    forward.half_pixel_centers = half
    forward.destination_image_allocator = gradient.destination_image_allocator = permanent
    rows = weights_at(positions(height, out_height, align, half), height)
    columns = weights_at(positions(width, out_width, align, half), width)
    x, dy = normal(random, height, width, channels), normal(random, out_height, out_width, channels)
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, forward, source, destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)
    terms = 8 * 9 + 16  # positions and weights, too, are float32
    assert close(result, np.einsum("yi,xj,ijc->yxc", rows, columns, x), terms)
    assert close(dx, np.einsum("yi,xj,yxc->ijc", rows, columns, dy), terms * 9)


def test_resize_properties(device):
    kernel = unmetal.NNResizeBilinear(device, 5, 7, True)
    for one in (kernel, kernel.copy(), decoded(kernel, device)):
        assert (one.resize_width, one.resize_height, one.align_corners, one.half_pixel_centers) == (5, 7, True, False)
    with pytest.raises(unmetal.ArgumentError, match="half_pixel_centers"):
        kernel.half_pixel_centers = True
    with pytest.raises(unmetal.ArgumentError, match="resize_width is 0"):
        unmetal.NNResizeBilinear(device, 0, 1)
    decoded(unmetal.NNResizeBilinearGradient(device), device)


def test_a_gradient_needs_the_state(device, queue, image_of):
    image = image_of(np.zeros((2, 2, 1), np.float32))
    with pytest.raises(unmetal.Error):
        unmetal.NNResizeBilinearGradient(device).encode(queue.command_buffer(), image, image)


@pytest.mark.parametrize("edge_mode", [ImageEdgeMode.Zero, ImageEdgeMode.Clamp])
def test_crop_in_all_encode_forms(edge_mode, device, queue, permanent, random):
    height, width, channels, out = 6, 7, 5, (4, 3)
    regions = [NormalizedRegion(), NormalizedRegion(-0.25, 0.5, 1.5, 0.25), NormalizedRegion(0.75, 0.1, -0.5, 0.6)]
    crop = unmetal.NNCropAndResizeBilinear(device, resize_width=out[1], resize_height=out[0], regions=regions)
    crop.edge_mode, crop.destination_image_allocator = edge_mode, permanent
    x = normal(random, 2, height, width, channels)
    sources = ImageBatch.from_array(device, x.astype(np.float32))

    def part(image, region):
        rows = (region.y + np.arange(out[0]) * region.height / (out[0] - 1)) * (height - 1)
        columns = (region.x + np.arange(out[1]) * region.width / (out[1] - 1)) * (width - 1)
        clamp = edge_mode == ImageEdgeMode.Clamp
        return np.einsum("yi,xj,ijc->yxc", weights_at(rows, height, clamp), weights_at(columns, width, clamp), image)

    expected = np.stack([part(image, region) for image in x for region in regions])
    with queue.command_buffer() as command_buffer:
        stack = crop.encode(command_buffer, sources[0])
        batch = crop.encode_batch(command_buffer, sources)
        into = Image(device, stack.descriptor)
        crop.encode(command_buffer, sources[0], into)
        many = ImageBatch(device, batch[0].descriptor, 6)
        crop.encode_batch(command_buffer, sources, many)
    assert stack.number_of_images == 3 and len(batch) == 6
    for found in (stack, into):
        assert close(found, expected[:3], 88)
    for found in (batch, many):
        assert close(np.stack([np.asarray(one) for one in found]), expected, 88)
    assert crop.regions == regions and crop.number_of_regions == 3 and (crop.resize_width, crop.resize_height) == (3, 4)
    assert decoded(crop, device).regions == regions


def test_crop_checks(device):
    with pytest.raises(unmetal.ArgumentError):
        unmetal.NNCropAndResizeBilinear(device, 2, 2, [])
    with pytest.raises(unmetal.ArgumentError):
        unmetal.NNCropAndResizeBilinear(device, 0, 2, [NormalizedRegion()])
    with pytest.raises(unmetal.Error):
        unmetal.NNCropAndResizeBilinear(device, 2, 2, [NormalizedRegion(1e10, 0, 1, 1)])
    region = NormalizedRegion(width=0.5)
    region.x, region.y, region.height = 0.125, 0.25, 0.75
    assert region == NormalizedRegion(0.125, 0.25, 0.5, 0.75) and region != NormalizedRegion()


def scaled(t, size, lanczos, scale):
    """Weights of ImageScale, edge mode Zero."""
    reach = max(1.0, 1 / scale)
    if not lanczos:
        weights = weights_at(t, size)
    else:
        distance = (np.arange(size)[None, :] - t[:, None]) / reach
        weights = np.where(np.abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0)
        weights /= np.where(weights.sum(axis=1) == 0, 1, weights.sum(axis=1))[:, None]
    return weights * ((t >= -0.5) & (t <= size - 0.5))[:, None]


@pytest.mark.parametrize("made", [unmetal.ImageBilinearScale, unmetal.ImageLanczosScale])
@pytest.mark.parametrize("transform", [None, ScaleTransform(1.5, 0.8, 0.3, -0.7)])
def test_scale(made, transform, device, queue, image_of, permanent, random):
    height, width, channels, out_height, out_width = 9, 8, 3, 5, 13
    kernel = made(device, output_width=out_width, output_height=out_height)
    kernel.scale_transform, kernel.destination_image_allocator = transform, permanent
    assert kernel.scale_transform == transform
    x = normal(random, height, width, channels)
    result = encoded(queue, kernel, image_of(x.astype(np.float32)))
    used = transform or ScaleTransform(out_width / width, out_height / height)

    def weights(size, count, scale, translate):
        t = (np.arange(count) + 0.5 - translate) / scale - 0.5
        return scaled(t, size, made is unmetal.ImageLanczosScale, scale)

    rows = weights(height, out_height, used.scale_y, used.translate_y)
    columns = weights(width, out_width, used.scale_x, used.translate_x)
    assert close(result, np.einsum("yi,xj,ijc->yxc", rows, columns, x), 200)
    for one in (kernel, kernel.copy(), decoded(kernel, device)):
        assert (one.output_width, one.output_height, one.scale_transform) == (out_width, out_height, transform)

    gradient = getattr(unmetal, f"{made.__name__}Gradient")(device)
    gradient.destination_image_allocator = permanent
    dy = normal(random, out_height, out_width, channels)
    source = image_of(x.astype(np.float32))
    _, state = encoded(queue, kernel, source, destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)
    assert close(dx, np.einsum("yi,xj,yxc->ijc", rows, columns, dy), 200)
    assert isinstance(gradient, unmetal.ImageScaleGradient) and decoded(gradient, device)


def test_scale_checks(device):
    with pytest.raises(unmetal.ArgumentError, match="output_width is 0"):
        unmetal.ImageLanczosScale(device, 0, 1)
    kernel = unmetal.ImageBilinearScale(device, 1, 1)
    for wrong in (ScaleTransform(scale_x=0), ScaleTransform(translate_y=1e10)):
        with pytest.raises(unmetal.ArgumentError):
            kernel.scale_transform = wrong
    assert kernel.scale_transform is None
    transform = ScaleTransform()
    transform.scale_x, transform.scale_y, transform.translate_x, transform.translate_y = 2, 3, 4, 5
    assert transform == ScaleTransform(2, 3, 4, 5)


def test_a_transform_provider_is_a_subclass(device, queue, image_of):
    asked = []

    class Shift(unmetal.ImageTransformProvider):
        def transform_for_source_image(self, image, handle):
            asked.append(handle)
            return ScaleTransform(1, 1, image.width - 2, 0)

    image = image_of(np.zeros((1, 3, 1), np.float32))
    for provider in (Shift(), unmetal.ImageTransformProvider()):
        with pytest.raises(NotImplementedError, match="transform_for_source_image"):
            unmetal.ImageTransformProvider.transform_for_source_image(provider, image, None)

    class Named(unmetal.Handle):
        label = "source"

    handle = Named()
    node = unmetal.NNBilinearScaleNode(unmetal.NNImageNode(handle), Size(3, 1, 1), Shift())
    graph = unmetal.NNGraph(device, node.result_image, True)
    with queue.command_buffer() as command_buffer:
        result = graph.encode(command_buffer, [image_of(np.array([[[1], [2], [3]]], np.float32))])
    assert np.asarray(result).ravel().tolist() == [0, 1, 2] and asked == [handle]
    for forward in (node, unmetal.NNLanczosScaleNode(unmetal.NNImageNode(), Size(3, 1, 1))):
        back = forward.gradient_filter(unmetal.NNImageNode())
        assert type(back).__name__ == type(forward).__name__.replace("Node", "GradientNode")


@pytest.mark.parametrize("edge_mode", [ImageEdgeMode.Zero, ImageEdgeMode.Clamp])
@pytest.mark.parametrize("as_coordinates", [True, False])
def test_grid_sample(edge_mode, as_coordinates, device, queue, image_of, permanent, random):
    height, width, channels = 5, 6, 3
    sample = unmetal.NNGridSample(device)
    assert sample.use_grid_value_as_input_coordinate
    sample.use_grid_value_as_input_coordinate = as_coordinates
    sample.primary_edge_mode, sample.destination_image_allocator = edge_mode, permanent
    x, grid = normal(random, height, width, channels), normal(random, 4, 7, 2)
    result = encoded(queue, sample, image_of(x.astype(np.float32)), image_of(grid.astype(np.float32)))

    def pixel(i, j):
        if edge_mode == ImageEdgeMode.Clamp:
            return x[min(max(i, 0), height - 1), min(max(j, 0), width - 1)]
        return x[i, j] if 0 <= i < height and 0 <= j < width else np.zeros(channels)

    expected = np.zeros((4, 7, channels))
    for i, j in np.ndindex(4, 7):
        px, py = grid[i, j]
        px, py = ((px + 1) / 2 * (width - 1), (py + 1) / 2 * (height - 1)) if as_coordinates else (j + px, i + py)
        left, top = int(np.floor(px)), int(np.floor(py))
        for below in (0, 1):
            for right in (0, 1):
                weight = abs(1 - below - (py - top)) * abs(1 - right - (px - left))
                expected[i, j] += weight * pixel(top + below, left + right)
    assert close(result, expected, 100)
    assert decoded(sample, device).use_grid_value_as_input_coordinate == as_coordinates
    with pytest.raises(unmetal.Error):
        sample.encode(queue.command_buffer(), image_of(x.astype(np.float32)), image_of(np.zeros((2, 2, 1), np.float32)))
