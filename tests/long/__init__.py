"""The reliability campaign: rounds drawn from a seed, for as long as it is told. See campaign.py."""
