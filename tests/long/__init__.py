"""The reliability campaign: random rounds, drawn from a seed, until a given time is over. See campaign.py."""
