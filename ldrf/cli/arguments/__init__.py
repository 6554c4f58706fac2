"""What each command takes from the command line: a file per command.

Nothing here imports torch, so that help and mistakes are shown at once. What a command does is in
``ldrf/cli/<name>.py``.
"""
