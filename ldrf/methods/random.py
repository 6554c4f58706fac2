"""D. Mittal, S. Bhardwaj, M. M. Khapra, B. Ravindran, Recovering from Random Pruning: On the Plasticity of Deep
Convolutional Neural Networks, WACV 2018: neurons are drawn by chance, the same for the same seed."""

from ldrf.methods.shared.cutting import by_criterion, cutting_method

ENTRY = cutting_method("random", "random (Mittal 2018)", "#444444", by_criterion("random"))
