"""What turns a checkout into releases: the build backend, the SBOM of the wheels, and the checks of a release."""
