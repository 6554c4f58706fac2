"""All recipes by name, in the order of the page."""

from ldrf.reproduce.imagenet import RESNET50, VGG16
from ldrf.reproduce.recipe import Recipe
from ldrf.reproduce.resnet20 import RECIPE as RESNET20
from ldrf.reproduce.vgg9 import RECIPE as VGG9

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (VGG9, RESNET20, RESNET50, VGG16)}
