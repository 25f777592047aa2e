"""The real result to play with: committed score rows, the lines they make, a widget and a page."""
