"""What runs networks and can be timed, a file each; every file defines ``ENTRY``."""
