"""Our code beside its peers', in one run on one machine. `make bench` runs all of it, `python -m benchmarks NAME ...`
a part."""
