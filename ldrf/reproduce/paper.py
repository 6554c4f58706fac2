"""The paper's own numbers, each with the table, figure or sentence it stands in (Chen et al., AAAI 2019).

Accuracies and increases of error are in percent and percentage points. Figures whose values are only drawn, not
written, have no numbers here: of Fig. 5 the 5x points are also in Tab. 5, of Fig. 7 the 5.1x point is also in Tab. 3.
"""

VGG9_TOP1 = 92.0  # Sec. "VGG-9 on CIFAR-10": "92% accuracy is achieved as our baseline"
VGG9_ENERGY = 0.55  # the same section: "the preserving cumulative sum of largest singular values ... to 0.55"
FINE_TUNING_ITERATIONS = 10_000  # the same section, of 100 images, from a rate of 0.01, falling linearly

# Tab. 1: the layers of VGG-9 as the paper names them, and as ldrf.zoo.vgg9 does.
VGG9_LAYERS = {
    "CONV1_1": "features.0",
    "CONV1_2": "features.3",
    "CONV2_1": "features.7",
    "CONV2_2": "features.10",
    "CONV3_1": "features.14",
    "CONV3_2": "features.17",
}
VGG9_NEURONS = (64, 64, 128, 128, 256, 256)  # Tab. 1, "Num."
VGG9_RANKS = (6, 18, 37, 49, 89, 103)  # Tab. 1, "Low rank"
VGG9_WIDTHS = {  # Tab. 1, "Num." of the four speed-up settings
    2: (12, 36, 74, 98, 236, 256),
    3: (6, 18, 65, 98, 178, 206),
    4: (6, 18, 37, 69, 178, 206),
    5: (6, 18, 37, 49, 152, 206),
}
VGG9_SPARSITY = {  # Tab. 1, "Spar.", filter and channel level together, percent
    2: (81.3, 89.5, 67.5, 55.7, 29.4, 7.8),
    3: (90.6, 97.4, 85.7, 61.1, 46.8, 44.0),
    4: (90.6, 97.4, 91.9, 84.4, 62.5, 44.0),
    5: (90.6, 97.4, 91.9, 88.9, 77.3, 52.2),
}

# Tab. 2: increase of error of VGG-9 at 5x before fine-tuning, by the criterion that selects neurons.
VGG9_CRITERIA = {"top-k": 2.61, "random": 2.81, "apoz": 2.72, "activation": 2.57, "weight": 2.76}

# Tab. 5: increase of error at 5x of (He et al., LDRF), before and after fine-tuning.
VGG9_BEFORE = {"he2017": 10.0, "ldrf": 2.6}
VGG9_AFTER = {"he2017": 3.6, "ldrf": 1.4}
VGG16_BEFORE = {"he2017": 22.0, "ldrf": 2.1}  # top-5
VGG16_AFTER = {"he2017": 1.7, "ldrf": 0.5}  # top-5
VGG9_AFTER_2X = 0.0  # text beside Tab. 2: "The accuracy is recovered under 2x speed-up"

# Sec. "VGG-16 and ResNet-50 on ImageNet-2012": top-5 of the dense networks, one centre crop.
VGG16_TOP5, RESNET50_TOP5 = 89.9, 92.2
VGG16_ENERGY = 0.65  # the same section: "can be lowered to 0.65 while keeping the accuracy unchanged"
VGG16_SPEEDUPS = (5.1, 5.8, 6.6, 7.0)  # the same section; their widths are not given
RESNET50_SPEEDUPS = (2.27, 3.0)  # Tab. 4; their widths are not given

# Tab. 3, VGG-16, and Tab. 4, ResNet-50: method, top-5, increase of error, speed-up; all after fine-tuning.
VGG16_RESULTS = (
    ("Molchanov et al.-1", 87.0, 2.9, 2.69),
    ("Molchanov et al.-2", 84.5, 5.4, 3.87),
    ("Luo et al.", 89.5, 0.4, 3.22),
    ("He et al.-1", 88.9, 1.0, 4.00),
    ("He et al.-2", 88.2, 1.7, 5.00),
    ("LDRF", 89.4, 0.5, 5.13),
)
RESNET50_RESULTS = (
    ("He et al.", 90.80, 1.40, 2.00),
    ("Luo et al.-1", 90.67, 1.53, 1.58),
    ("Luo et al.-2", 90.02, 2.18, 2.26),
    ("LDRF-1", 92.01, 0.19, 2.27),
    ("LDRF-2", 91.55, 0.65, 3.00),
)

# Supplement's table: the range of widths of each conv of VGG-16, low rank at energy 0.65 and number of neurons.
VGG16_LAYERS = {  # as the paper names them, and as torchvision does
    "CONV1_1": "features.0",
    "CONV1_2": "features.2",
    "CONV2_1": "features.5",
    "CONV2_2": "features.7",
    "CONV3_1": "features.10",
    "CONV3_2": "features.12",
    "CONV3_3": "features.14",
    "CONV4_1": "features.17",
    "CONV4_2": "features.19",
    "CONV4_3": "features.21",
    "CONV5_1": "features.24",
    "CONV5_2": "features.26",
    "CONV5_3": "features.28",
}
VGG16_RANGES = (
    (4, 64),
    (14, 64),
    (28, 128),
    (44, 128),
    (72, 256),
    (85, 256),
    (101, 256),
    (167, 512),
    (207, 512),
    (231, 512),
    (236, 512),
    (234, 512),
    (234, 512),
)


def vgg9_widths(speedup: int) -> dict[str, int]:
    """Tab. 1's widths at 2, 3, 4 or 5x by the layer names of ldrf.zoo.vgg9."""
    return dict(zip(VGG9_LAYERS.values(), VGG9_WIDTHS[speedup], strict=True))
