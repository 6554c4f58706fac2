"""H. Hu, R. Peng, Y.-W. Tai, C.-K. Tang, Network Trimming: A Data-Driven Neuron Pruning Approach towards Efficient
Deep Architectures, 2016: neurons with the largest average percentage of zeros (APoZ) go."""

from ldrf.methods.cutting import by_criterion, cutting_method

HU2016 = cutting_method("hu2016", by_criterion("apoz"))
