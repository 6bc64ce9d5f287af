"""What every package uses: errors, files, canonical JSON, random draws, timing."""
