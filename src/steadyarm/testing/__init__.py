"""Checks that every policy and every environment must pass, to run on your own."""
