"""Code to copy from the report: how the slim network is loaded."""

from ldrf.report.runs import ReportedRun

ZOO = {
    "vgg9": ("from ldrf.zoo.vgg9 import VGG9", "VGG9()"),
    "resnet20": ("from ldrf.zoo.cifar_resnet import resnet20", "resnet20()"),
    "resnet56": ("from ldrf.zoo.cifar_resnet import resnet56", "resnet56()"),
}


def load_code(run: ReportedRun) -> str:
    """A few lines of Python that load the slim network."""
    imported, made = _architecture(run)
    lines = ["import ldrf", *([imported] if imported else []), ""]
    lines += [f"dense = {made}", f"slim = ldrf.load({str(run.folder)!r}, dense).eval()"]
    return "\n".join(lines)


def _architecture(run: ReportedRun) -> tuple[str, str]:
    """The import and the expression that make the dense architecture; its weights do not matter."""
    kind, _, name = run.model.rpartition(":")
    if run.model in ZOO:
        return ZOO[run.model]
    if kind == "torchvision":
        return "import torchvision", f"torchvision.models.get_model({name!r}, weights=None)"
    if kind == "timm":
        return "import timm", f"timm.create_model({name!r})"
    if kind.endswith(".py") and name.isidentifier():
        module = kind.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
        if module.isidentifier():
            return f"from {module} import {name}  # {kind!r}", f"{name}()"
    kind = run.kind if run.kind.isidentifier() else "model"  # a folder from elsewhere must not add lines of code
    return "", f"...  # a fresh dense {kind}, made as you made yours"
