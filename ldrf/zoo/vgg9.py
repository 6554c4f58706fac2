"""VGG-9, the network of the paper's CIFAR-10 experiments (Sec. "VGG-9 on CIFAR-10")."""

from torch import Tensor, nn


class VGG9(nn.Module):
    """(2x64C3)-MP2-(2x128C3)-MP2-(2x256C3)-MP2-(2x512FC)-10FC with a BatchNorm after every conv.

    Input [batch, 3, 32, 32], output [batch, classes].
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width in (64, 128, 256):
            for _ in range(2):
                layers += [
                    nn.Conv2d(inputs, width, 3, padding=1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(256 * 4 * 4, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))
