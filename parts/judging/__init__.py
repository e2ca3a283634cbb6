"""AI feedback: a model judges answers by written principles (Bai et al. 2022, arXiv:2212.08073)."""
