"""`python -m knnmt`: the same as `knnmt`."""

from knnmt.cli import main

if __name__ == "__main__":
    main()
