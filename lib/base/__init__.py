"""What every room stands on: where files are, how they are written, fetched and kept."""
