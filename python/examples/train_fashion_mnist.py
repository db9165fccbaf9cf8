"""Trains a small net on Fashion-MNIST: python train_fashion_mnist.py [--steps N] [--folder FOLDER]"""

import argparse
import gzip
import pathlib

import numpy as np

import unmetal

device = unmetal.mtl.create_system_default_device()


def read(folder, part):
    """Pictures from 0 to 1 with a channel, and classes."""
    pixels, labels = (gzip.decompress((folder / f"{part}-{name}-ubyte.gz").read_bytes())
                      for name in ("images-idx3", "labels-idx1"))
    pictures = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28, 1).astype(np.float32) / 255
    return pictures, np.frombuffer(labels, np.uint8, offset=8)


def make_net():
    """The result's image of two convolutions and two fully connected layers, and the layers."""
    layers = [unmetal.TrainableConvolution(device, unmetal.CNNConvolutionDescriptor(*shape), f"layer{seed}", seed,
                                           unmetal.NNOptimizerAdam(device, 1e-3))
              for seed, shape in enumerate([(5, 5, 1, 16), (5, 5, 16, 32), (7, 7, 32, 128), (1, 1, 128, 10)])]
    image = unmetal.NNImageNode()
    for layer in layers[:2]:
        image = unmetal.CNNNeuronReLUNode(unmetal.CNNConvolutionNode(image, layer).result_image).result_image
        image = unmetal.CNNPoolingMaxNode(image, 2).result_image
    image = unmetal.CNNNeuronReLUNode(unmetal.CNNFullyConnectedNode(image, layers[2]).result_image).result_image
    return unmetal.CNNFullyConnectedNode(image, layers[3]).result_image, layers


def train(result, pictures, classes, steps, batch=64):
    """The mean loss of each step."""
    descriptor = unmetal.CNNLossDescriptor(unmetal.CNNLossType.SoftMaxCrossEntropy, unmetal.CNNReductionType.Sum)
    descriptor.weight, descriptor.number_of_classes = 1 / batch, 10
    ends = unmetal.CNNLossNode(result, descriptor).training_graph()
    graph = unmetal.NNGraph(device, [end.result_image for end in ends], [False] * len(ends))
    queue, random, losses = device.new_command_queue(), np.random.default_rng(1), []
    labels = unmetal.CNNLossLabels.create_class_batch(device, batch)
    for _ in range(steps):
        chosen = random.choice(len(pictures), batch, replace=False)
        unmetal.CNNLossLabels.write_class_indices(labels, classes[chosen])
        with queue.command_buffer() as command_buffer:  # commits and waits at its end
            graph.encode_batch(command_buffer, [unmetal.ImageBatch.from_array(device, pictures[chosen])], [labels])
            labels.synchronize(command_buffer)
        losses.append(sum(np.asarray(image).item() for image in unmetal.CNNLossLabels.loss_images(labels)))
    return losses


def predict(result, pictures, batch=500):
    """The class of each picture."""
    graph, queue, found = unmetal.NNGraph(device, result), device.new_command_queue(), []
    for first in range(0, len(pictures), batch):
        with queue.command_buffer() as command_buffer:
            images = unmetal.ImageBatch.from_array(device, pictures[first:first + batch])
            results = graph.encode_batch(command_buffer, [images])
        found += [int(np.asarray(image).argmax()) for image in results]
    return np.array(found)


def parse(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=1000, help="batches of 64 pictures")
    parser.add_argument("--folder", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", type=pathlib.Path, default=".", help="where plots.py draws")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse(__doc__)
    result, _ = make_net()
    losses = train(result, *read(options.folder, "train"), options.steps)
    pictures, classes = read(options.folder, "t10k")
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, accuracy {(predict(result, pictures) == classes).mean():.4f}")
