"""Pooling of images: windows of pixels, channel by channel."""
