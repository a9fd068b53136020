"""specbench: does speculative decoding pay for this model, this traffic and these machines?"""

__version__ = "0.1.0"
