"""Networks in PyTorch as `unmetal` builds them, for bench/peers/pytorch and tools/test_data/make."""

import torch
from torch import nn


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, channels, stride)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, 4 * channels, stride)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def shortcut(inputs, outputs, stride):
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Layers have torchvision's names. Small pictures keep their size through the first layer."""

    def __init__(self, block, blocks, inputs, classes, small, channels=64):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, *((3, 1, 1) if small else (7, 2, 3)), bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        width = channels
        for stage, count in enumerate(blocks):
            stride = 1 if stage == 0 else 2
            layer = []
            for number in range(count):
                layer.append(block(width, channels << stage, stride if number == 0 else 1))
                width = block.expansion * (channels << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def mnist_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Dropout(0.5), nn.Linear(1024, 10))


def resnet18(side, inputs, classes, channels=64):
    return ResNet(BasicBlock, (2, 2, 2, 2), inputs, classes, side < 64, channels)


def resnet50(side, inputs, classes, channels=64):
    return ResNet(Bottleneck, (3, 4, 6, 3), inputs, classes, side < 64, channels)


class AlexNetLRN(nn.Module):
    def __init__(self, side, inputs, classes, channels=64):
        super().__init__()
        small = side < 64
        c, dense = channels, channels * (16 if small else 64)
        first = nn.Conv2d(inputs, c, 3, 1, 1) if small else nn.Conv2d(inputs, c, 11, 4, 5)
        pool = nn.MaxPool2d(3, 2, 1)
        self.features = nn.Sequential(
            first, nn.ReLU(), nn.LocalResponseNorm(5, 1e-4, 0.75, 2), pool,
            nn.Conv2d(c, 3 * c, 5, 1, 2), nn.ReLU(), nn.LocalResponseNorm(5, 1e-4, 0.75, 2), pool,
            nn.Conv2d(3 * c, 6 * c, 3, 1, 1), nn.ReLU(), nn.Conv2d(6 * c, 4 * c, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(4 * c, 4 * c, 3, 1, 1), nn.ReLU(), pool)
        last = side
        for stride in (1 if small else 4, 2, 2, 2):
            last = -(-last // stride)
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(4 * c * last * last, dense), nn.ReLU(),
            nn.Dropout(0.5), nn.Linear(dense, dense), nn.ReLU(), nn.Linear(dense, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def two_layers(inputs, channels):
    return nn.Sequential(nn.Conv2d(inputs, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
                         nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))


class UNetSmall(nn.Module):
    def __init__(self, side, inputs, classes, channels=16):
        super().__init__()
        self.down1, self.down2 = two_layers(inputs, channels), two_layers(channels, 2 * channels)
        self.bottom = two_layers(2 * channels, 4 * channels)
        self.up2, self.up1 = two_layers(6 * channels, 2 * channels), two_layers(3 * channels, channels)
        self.pixels = nn.Conv2d(channels, classes, 1)
        self.halved = nn.MaxPool2d(2)
        self.doubled = nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, x):
        whole = self.down1(x)
        half = self.down2(self.halved(whole))
        x = self.doubled(self.bottom(self.halved(half)))
        x = self.doubled(self.up2(torch.cat([half, x], 1)))
        return self.pixels(self.up1(torch.cat([whole, x], 1))).mean((2, 3))


def normalized(inputs, channels, kernel=3, stride=1):
    return [nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, bias=False), nn.InstanceNorm2d(channels, affine=True)]


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(*normalized(channels, channels), nn.ReLU(inplace=True), *normalized(channels, channels))

    def forward(self, x):
        return self.layers(x) + x


class Style(nn.Module):
    def __init__(self, side, inputs, classes, channels=32):
        super().__init__()
        c, relu = channels, nn.ReLU(inplace=True)
        self.layers = nn.Sequential(
            *normalized(inputs, c, 9), relu, *normalized(c, 2 * c, 3, 2), relu, *normalized(2 * c, 4 * c, 3, 2), relu,
            *[Residual(4 * c) for _ in range(5)],
            nn.Upsample(scale_factor=2), *normalized(4 * c, 2 * c), relu,
            nn.Upsample(scale_factor=2), *normalized(2 * c, c), relu, nn.Conv2d(c, classes, 9, 1, 4))

    def forward(self, x):
        return self.layers(x).mean((2, 3))
