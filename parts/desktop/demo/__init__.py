"""``burnish demo``: a simulated user says what it likes, burnish learns, and both are shown side by side."""
