"""D. Mittal, S. Bhardwaj, M. M. Khapra, B. Ravindran, Recovering from Random Pruning: On the Plasticity of Deep
Convolutional Neural Networks, WACV 2018: neurons are drawn by chance, the same for the same seed."""

from ldrf.methods.cutting import by_criterion, cutting_method

RANDOM = cutting_method("random", by_criterion("random"))
