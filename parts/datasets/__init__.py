"""Data in and out: records, datasets for other trainers, and the exports of other programs."""
