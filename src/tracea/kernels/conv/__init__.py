"""Two-dimensional convolutions as implicit matrix products: no buffer ever holds the windows side by side."""
