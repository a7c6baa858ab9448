"""Handwritten digits: a convolutional net with batch norm and dropout on the images that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

from bridge.demo.task import Batch, Task

EPOCHS = 6
BATCH = 64
TEST_IMAGES = 357


class DigitNet(nn.Module):
    """Two convolutions and two linear layers over images of (n, 1, 8, 8), ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
        )
        self.classifier = nn.Sequential(nn.Linear(64 * 16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """The loss if there are labels, else the scores of the classes."""
        scores = self.classifier(self.features(images).flatten(1))
        return scores if labels is None else F.cross_entropy(scores, labels)


def digits_task() -> Task:
    """The training as a task. Needs scikit-learn."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    images = (torch.tensor(pixels, dtype=torch.float32) / 16)[order].view(-1, 1, 8, 8)
    labels = torch.tensor(digits, dtype=torch.int64)[order]
    test, train = slice(0, TEST_IMAGES), slice(TEST_IMAGES, None)
    steps_an_epoch = (len(labels) - TEST_IMAGES) // BATCH

    def batches() -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1)
        for _ in range(EPOCHS):
            shuffled = torch.randperm(len(labels[train]), generator=generator)
            for chosen in shuffled[: steps_an_epoch * BATCH].split(BATCH):
                yield images[train][chosen], labels[train][chosen]

    def score(model: nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            right = model(images[test]).argmax(1) == labels[test]
        model.train()
        return 100 * right.float().mean().item()

    return Task(
        name="digits",
        title="convolutional net with batch norm and dropout on handwritten digits",
        steps=EPOCHS * steps_an_epoch,
        make_model=DigitNet,
        batches=batches,
        make_optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-3),
        score=score,
    )
