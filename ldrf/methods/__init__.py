"""ldrf's own method and the rivals, a file each, on the same units, costs, images and recomposition.

Every file defines ``ENTRY``; ``ldrf.registry.METHODS`` finds them by name. Imports planning and reconstruction.
"""
