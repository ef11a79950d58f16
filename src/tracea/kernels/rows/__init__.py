"""Row variants: normalisations and softmax along the last axis, and reductions."""
