"""Trains a small net on Fashion-MNIST: python train_fashion_mnist.py [STEPS]"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import unmetal

Pictures = npt.NDArray[np.float32]
Classes = npt.NDArray[np.uint8]

device = unmetal.mtl.create_system_default_device()
queue = device.new_command_queue()


def read(part: str) -> tuple[Pictures, Classes]:
    """Pictures from 0 to 1, (count, 28, 28, 1), and their classes; of Debian's dataset-fashion-mnist."""
    pixels, classes = (np.frombuffer(gzip.open(f"/usr/share/datasets/fashion-mnist/{part}-{name}-ubyte.gz").read(), np.uint8)
                       for name in ("images-idx3", "labels-idx1"))
    return pixels[16:].reshape(-1, 28, 28, 1).astype(np.float32) / 255, classes[8:]


def make_net() -> tuple[unmetal.NNImageNode, list[unmetal.TrainableConvolution]]:
    """Two convolutions and two fully connected layers: the node of the result, and the layers."""
    layers = [unmetal.TrainableConvolution(device, unmetal.CNNConvolutionDescriptor(*shape), f"layer{seed}", seed,
                                           unmetal.NNOptimizerAdam(device, 1e-3))
              for seed, shape in enumerate([(5, 5, 1, 16), (5, 5, 16, 32), (7, 7, 32, 128), (1, 1, 128, 10)])]
    image = unmetal.NNImageNode()
    for layer in layers[:2]:
        image = unmetal.CNNNeuronReLUNode(unmetal.CNNConvolutionNode(image, layer).result_image).result_image
        image = unmetal.CNNPoolingMaxNode(image, 2).result_image
    image = unmetal.CNNNeuronReLUNode(unmetal.CNNFullyConnectedNode(image, layers[2]).result_image).result_image
    return unmetal.CNNFullyConnectedNode(image, layers[3]).result_image, layers


def train(result: unmetal.NNImageNode, pictures: Pictures, classes: Classes, steps: int, batch: int = 64) -> Iterator[float]:
    """Yields the mean loss of each step."""
    descriptor = unmetal.CNNLossDescriptor(unmetal.CNNLossType.SoftMaxCrossEntropy, unmetal.CNNReductionType.Sum)
    descriptor.weight, descriptor.number_of_classes = 1 / batch, 10
    graph = unmetal.NNGraph(device, unmetal.CNNLossNode(result, descriptor).training_graph()[0].result_image, False)
    labels = unmetal.CNNLossLabels.create_class_batch(device, batch)
    for chosen in np.random.default_rng(1).integers(len(pictures), size=(steps, batch)):
        unmetal.CNNLossLabels.write_class_indices(labels, classes[chosen])
        with queue.command_buffer() as command_buffer:  # commits and waits at its end
            graph.encode_batch(command_buffer, [unmetal.ImageBatch.from_array(device, pictures[chosen])], [labels])
            labels.synchronize(command_buffer)
        yield sum(np.asarray(image).item() for image in unmetal.CNNLossLabels.loss_images(labels))


def predict(result: unmetal.NNImageNode, pictures: Pictures) -> npt.NDArray[np.int64]:
    """The class of each picture."""
    with queue.command_buffer() as command_buffer:
        found = unmetal.NNGraph(device, result).encode_batch(command_buffer, [unmetal.ImageBatch.from_array(device, pictures)])
    return np.array([np.asarray(image).argmax() for image in found])


if __name__ == "__main__":
    result, _ = make_net()
    pictures, classes = read("train")
    losses = list(train(result, pictures, classes, steps=int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
    pictures, classes = read("t10k")
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, accuracy {(predict(result, pictures) == classes).mean():.4f}")
