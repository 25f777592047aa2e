"""What all other packages use: paths, file writing, downloads, and where results come from."""
