"""`python -m shmstats.vllm doctor`"""

import sys

from .doctor import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
