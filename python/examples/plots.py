"""Trains the net of train_fashion_mnist.py and draws its first filters, the losses and a confusion matrix."""

from __future__ import annotations

import argparse
import pathlib

import matplotlib
import numpy as np
import numpy.typing as npt

matplotlib.use("Agg")  # files, no windows

from matplotlib import pyplot

import train_fashion_mnist as training
import unmetal

names = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def draw_filters(layer: unmetal.TrainableConvolution, path: pathlib.Path) -> None:
    """The weights of a layer's channels, all on one scale."""
    with training.queue.command_buffer() as command_buffer:
        layer.synchronize(command_buffer)
    largest = np.abs(layer.weights).max()
    figure, places = pyplot.subplots(2, len(layer.weights) // 2, figsize=(8, 2.4))
    for place, weights in zip(places.flat, layer.weights):
        place.imshow(weights[..., 0], cmap="gray", vmin=-largest, vmax=largest)
        place.axis("off")
    figure.savefig(path)


def draw_losses(losses: list[float], path: pathlib.Path) -> None:
    figure, place = pyplot.subplots()
    place.plot(losses)
    place.set(xlabel="step", ylabel="loss", yscale="log")
    figure.savefig(path)


def draw_confusion(found: npt.NDArray[np.int64], classes: training.Classes, path: pathlib.Path) -> None:
    """How many pictures of each class (rows) were taken for which one (columns)."""
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (classes, found), 1)
    figure, place = pyplot.subplots(figsize=(8, 8))
    place.imshow(counts, cmap="Blues")
    place.set(xlabel="found", ylabel="class", xticks=range(10), yticks=range(10), yticklabels=names)
    place.set_xticklabels(names, rotation=60, ha="right")
    for (row, column), count in np.ndenumerate(counts):
        place.text(column, row, count, ha="center", va="center", color="white" if count > counts.max() / 2 else "black")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="batches of 64 pictures")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    result, layers = training.make_net()
    pictures, classes = training.read("train")
    losses = list(training.train(result, pictures, classes, options.steps))
    pictures, classes = training.read("t10k")
    draw_filters(layers[0], options.out / "filters.png")
    draw_losses(losses, options.out / "losses.png")
    draw_confusion(training.predict(result, pictures), classes, options.out / "confusion.png")
