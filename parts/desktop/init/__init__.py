"""``burnish init``: changes on a machine are planned as a whole, carried out as a whole, and taken back."""
