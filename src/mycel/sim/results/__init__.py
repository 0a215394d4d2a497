"""What a run gives: columns, summaries, files, the report."""
