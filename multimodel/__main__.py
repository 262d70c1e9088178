"""`python -m multimodel`: the command line."""

from multimodel.cli import main

main()
