"""The Python twins of the compiled kernels. Import them through `barnabas._kernels`, which selects one of both."""
