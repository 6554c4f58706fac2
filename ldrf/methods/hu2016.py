"""H. Hu, R. Peng, Y.-W. Tai, C.-K. Tang, Network Trimming: A Data-Driven Neuron Pruning Approach towards Efficient
Deep Architectures, 2016: neurons with the largest average percentage of zeros (APoZ) go."""

from ldrf.methods.shared.cutting import by_criterion, cutting_method

ENTRY = cutting_method("hu2016", "APoZ (Hu 2016)", "#4aa3a2", by_criterion("apoz"))
