"""What every policy and storage must satisfy, to run on your own."""
