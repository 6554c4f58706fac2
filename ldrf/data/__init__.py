"""Images by name: the bundled sample, CIFAR-10, folders of pictures, and data of your own."""
