"""`python -m sumpter` is the command `sumpter`."""

from sumpter_command import main

main()
