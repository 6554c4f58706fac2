"""The files of the folder ``examples``, as they are."""

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"
TITLES = {
    "quickstart": "Quick start",
    "torchvision_model": "A torchvision model",
    "timm_model": "A timm model",
    "huggingface_vit": "A Hugging Face ViT",
    "own_training_loop": "Your own training loop",
}


def examples() -> str:
    """A section for every example."""
    names = {path.stem for path in FOLDER.glob("*.py")}
    if names != TITLES.keys():
        raise ValueError(f"Examples without a title, or titles without an example: {names ^ TITLES.keys()}.")
    return "\n\n".join(f"## {title}\n\n```python\n{_source(name)}\n```" for name, title in TITLES.items())


def _source(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text().strip()
