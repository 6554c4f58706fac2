"""Where a network will run: runtimes, how long its layers take there at any width, and whole networks on the clock.
Imports units."""
