"""Formats that other programs define and change, one file each: exports that burnish reads, rollouts that it writes."""
