"""Networks as people write them in PyTorch, exported by its exporters: they compute what ONNX Runtime does, and learn what PyTorch does.

Runs with any PyTorch: with Debian's the exporter that traces, with version 2.9 and onnxscript the one that torch.onnx.export takes, too.
`scripts/check-all onnx` runs it.
"""

import importlib.util
import inspect
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import unmetal  # noqa: E402
from test_onnx_import import expected, found  # noqa: E402
from unmetal import train  # noqa: E402

has_new_exporter = "dynamo" in inspect.signature(torch.onnx.export).parameters and importlib.util.find_spec("onnxscript")
exporters = ["traced"] + (["dynamo"] if has_new_exporter else [])
tolerance = 1e-4


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """Of ResNet-50."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        width = outputs // 4
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.relu(self.body(x) + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, block, counts, widths, classes):
        super().__init__()
        width = 16
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages = []
        for stage, (count, outputs) in enumerate(zip(counts, widths)):
            for index in range(count):
                stages.append(block(width, outputs, 2 if stage > 0 and index == 0 else 1))
                width = outputs
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.stages(x)), 1))


def resnet18():
    return ResNet(Residual, (2, 2, 2, 2), (16, 32, 64, 128), 10)


def resnet50():
    return ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), 10)


class SqueezeAndExcitation(nn.Module):
    def __init__(self, channels, gate):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)
        self.gate = gate

    def forward(self, x):
        pooled = functional.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.expand(functional.relu(self.reduce(pooled))))


class MobileNet(nn.Module):
    """Versions 2 and 3, and EfficientNet, by what they compute behind a convolution."""

    def __init__(self, activation, gate=None):
        super().__init__()

        def normalised(inputs, outputs, size, stride=1, groups=1):
            return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
                                 nn.BatchNorm2d(outputs), activation(inplace=True))

        self.stem = normalised(3, 16, 3, 2)
        self.block = nn.Sequential(normalised(16, 64, 1), normalised(64, 64, 3, 1, 64),
                                   nn.Identity() if gate is None else SqueezeAndExcitation(64, gate),
                                   nn.Conv2d(64, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 10))

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block(x)
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).reshape(x.shape[0], -1))


class UNet(nn.Module):
    def __init__(self, enlarge):
        super().__init__()

        def twice(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())

        self.first, self.second = twice(3, 8), twice(8, 16)
        self.up = nn.ConvTranspose2d(16, 16, 2, 2) if enlarge == "transposed" else nn.Conv2d(16, 16, 1)
        self.mode = enlarge
        self.last = nn.Sequential(twice(24, 8), nn.Conv2d(8, 4, 1))

    def forward(self, x):
        skipped = self.first(x)
        x = self.up(self.second(functional.max_pool2d(skipped, 2)))
        if self.mode == "nearest":
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
        if self.mode == "bilinear":
            x = functional.interpolate(x, size=skipped.shape[2:], mode="bilinear", align_corners=False)
        return self.last(torch.cat([x, skipped], dim=1))


class VGG(nn.Module):
    def __init__(self, flatten):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2),
                                      nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(4, 4))
        self.classifier = nn.Sequential(nn.Linear(16 * 4 * 4, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 10))
        self.flatten = flatten

    def forward(self, x):
        return self.classifier(self.flatten(self.features(x)))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(16 + 8 * index), nn.ReLU(), nn.Conv2d(16 + 8 * index, 8, 3, padding=1, bias=False))
            for index in range(3))
        self.norm, self.fc = nn.BatchNorm2d(40), nn.Linear(40, 10)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.fc(functional.avg_pool2d(functional.relu(self.norm(torch.cat(features, 1))), 2, 2).mean((2, 3)))


class Between(nn.Module):
    """A function of 16 channels between two convolutions."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function, self.last = nn.Conv2d(3, 16, 3, padding=1), function, nn.Conv2d(16, 10, 1)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


class Pooled(nn.Module):
    """A function that makes a row of 16 numbers."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function, self.last = nn.Conv2d(3, 16, 3, padding=1), function, nn.Linear(16, 10)

    def forward(self, x):
        return self.last(self.function(functional.relu(self.first(x))))


networks = {
    "resnet18": resnet18, "resnet50": resnet50, "densenet": DenseNet,
    "mobilenet2": lambda: MobileNet(nn.ReLU6), "mobilenet3": lambda: MobileNet(nn.Hardswish, nn.Hardsigmoid()),
    "efficientnet": lambda: MobileNet(nn.SiLU, nn.Sigmoid()),
    "unet-transposed": lambda: UNet("transposed"), "unet-nearest": lambda: UNet("nearest"),
    "unet-bilinear": lambda: UNet("bilinear"),
    "vgg-flatten": lambda: VGG(lambda x: torch.flatten(x, 1)), "vgg-view": lambda: VGG(lambda x: x.view(x.size(0), -1)),
    "vgg-open-batch": lambda: VGG(lambda x: x.view(-1, 16 * 4 * 4)),
    "vgg-reshape": lambda: VGG(lambda x: x.reshape(x.shape[0], x.shape[1] * x.shape[2] * x.shape[3])),
    "vgg-permute": lambda: VGG(lambda x: x.permute(0, 2, 3, 1).flatten(1)),
    "group-norm": lambda: Between(nn.GroupNorm(4, 16)), "group-norm-plain": lambda: Between(nn.GroupNorm(4, 16, affine=False)),
    "layer-norm": lambda: Between(nn.GroupNorm(1, 16)), "instance-norm": lambda: Between(nn.InstanceNorm2d(16, affine=True)),
    "instance-norm-plain": lambda: Between(nn.InstanceNorm2d(16)),
    "pad": lambda: Between(lambda x: functional.pad(x, (1, 2, 3, 4), value=0.5)),
    "pad-reflect": lambda: Between(lambda x: functional.pad(x, (1, 2, 3, 4), mode="reflect")),
    "pad-replicate": lambda: Between(nn.ReplicationPad2d(2)),
    "conv-reflect": lambda: Between(nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect")),
    "conv-same": lambda: Between(nn.Conv2d(16, 16, 4, padding="same")),
    "corners": lambda: Between(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)),
    "gelu": lambda: Between(functional.gelu), "mish": lambda: Between(functional.mish), "prelu": lambda: Between(nn.PReLU(16)),
    "selu": lambda: Between(functional.selu), "celu": lambda: Between(nn.CELU(0.5)),
    "max-pool-ceil": lambda: Between(nn.MaxPool2d(3, 2, ceil_mode=True)),
    "average-pool-pad": lambda: Between(nn.AvgPool2d(3, 2, 1)),
    "average-pool-ceil": lambda: Between(nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False)),
    "mean": lambda: Pooled(lambda x: x.mean((2, 3))), "mean-twice": lambda: Pooled(lambda x: x.mean(3).mean(2)),
    "mean-of-view": lambda: Pooled(lambda x: x.view(x.size(0), x.size(1), -1).mean(2)), "sum": lambda: Pooled(lambda x: x.sum((2, 3))),
    "maximum": lambda: Pooled(lambda x: x.amax((2, 3))),
    "squeeze": lambda: Pooled(lambda x: functional.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)),
    "first-pixel": lambda: Pooled(lambda x: functional.adaptive_avg_pool2d(x, 1)[:, :, 0, 0]),
    "pool-by-size": lambda: Pooled(lambda x: torch.flatten(functional.avg_pool2d(x, x.size()[2:]), 1)),
}


def with_random_statistics(network):
    """Neither the weights nor the statistics of normalisations are those of the beginning."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        if isinstance(module, (nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d)) and module.weight is not None:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    return network


def export(network, pictures, path, exporter, **options):
    if has_new_exporter:
        options["dynamo"] = exporter == "dynamo"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (pictures,), str(path), **options)


@pytest.mark.parametrize("exporter", exporters)
@pytest.mark.parametrize("name", networks)
def test_forward(name, exporter, tmp_path):
    if name == "conv-same" and not has_new_exporter:  # where an export fails later ones may crash
        pytest.skip("this PyTorch does not export it")
    torch.manual_seed(4)
    network, pictures, path = with_random_statistics(networks[name]()).eval(), torch.randn(1, 3, 32, 32), tmp_path / "network.onnx"
    export(network, pictures, path, exporter)
    theirs = expected(path, pictures.numpy())
    ours = found(unmetal.onnx.load(path), pictures.numpy()).reshape(theirs.shape)
    assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


def resnet50_of_small_steps():
    """Blocks that add little: fresh ones, normalised with the statistics of a small batch, enlarge the rounding errors of a step ten
    thousand times. PyTorch in float32 is 1 % off PyTorch in float64 after two steps then."""
    network = resnet50()
    for block in network.stages:
        nn.init.constant_(block.body[-1].weight, 0.1)
    return network


def as_in_pytorch(written, key):
    """The array of an export of ours that is that one of PyTorch's."""
    stem, _, role = key.rpartition(".")
    roles = {"weight": "gamma", "bias": "beta", "running_mean": "mean", "running_var": "variance"}
    return written[f"{stem}.{roles[role]}" if f"{stem}.gamma" in written else key]


def values_of_each_channel(network, pictures):
    """Of the sources of normalisations, by their names."""
    counts = {}

    def hook(name):
        return lambda module, inputs, result: counts.update({name: result.numel() // result.shape[1]})

    hooks = [module.register_forward_hook(hook(name)) for name, module in network.named_modules()
             if isinstance(module, nn.BatchNorm2d)]
    network(pictures)
    for each in hooks:
        each.remove()
    return counts


@pytest.mark.parametrize("make, rate", [(resnet18, 1e-3), (resnet50_of_small_steps, 1e-4)], ids=["resnet18", "resnet50"])
def test_five_steps_with_batch_normalisation(make, rate, tmp_path, monkeypatch):
    """Statistics of each batch on both sides; then the running ones, which PyTorch computes with another divisor.

    ELU in place of ReLU: where a ReLU's source is nearly 0, rounding decides whether a gradient passes, and the weights of two
    correct libraries part.
    """
    monkeypatch.setattr(functional, "relu", lambda values, inplace=False: functional.elu(values))
    torch.manual_seed(5)
    count, side, steps, path = 8, 64, 5, tmp_path / "network.onnx"
    network = make()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # beside 0 the rounding errors of sums that cancel are large
            nn.init.normal_(module.bias, 0, 0.1)
    pictures, labels = torch.randn(count, 3, side, side), torch.randint(10, (count,))
    export(network.eval(), pictures[:1], path, "traced", training=torch.onnx.TrainingMode.PRESERVE)
    ours = unmetal.onnx.load(path)
    descent, losses = torch.optim.SGD(network.parameters(), lr=rate), []
    counts = values_of_each_channel(network, pictures)
    network.train()
    for _ in range(steps):
        descent.zero_grad()
        loss = functional.cross_entropy(network(pictures), labels)
        loss.backward()
        descent.step()
        losses.append(float(loss))
    data = train.Dataset(np.ascontiguousarray(pictures.numpy().transpose(0, 2, 3, 1)), labels.numpy().astype(np.uint32),
                         class_names=[str(index) for index in range(10)])
    reports = train.Trainer(ours, optimizer="sgd", epochs=steps, batch_size=count, learning_rate=rate).fit(data)
    assert losses[-1] < losses[0]
    assert np.allclose([report.loss for report in reports], losses, rtol=tolerance)
    unmetal.onnx.export_network(ours, tmp_path / "trained.onnx", softmax=False)
    written = {tensor.name: numpy_helper.to_array(tensor)
               for tensor in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    for key, value in network.state_dict().items():
        if key.endswith("num_batches_tracked"):
            continue
        theirs = value.numpy()
        if key.endswith("running_var"):
            kept = 0.9 ** steps  # of the variance at the beginning, 1
            values = counts[key.removesuffix(".running_var")]
            theirs = kept + (theirs - kept) * (values - 1) / values
        difference = np.abs(as_in_pytorch(written, key).reshape(theirs.shape) - theirs).max()
        assert difference <= tolerance * np.abs(theirs).max(), key
