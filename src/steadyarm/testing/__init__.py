"""What every policy, storage and environment must satisfy, to run on your own."""
