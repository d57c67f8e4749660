"""The compiled kernels. Import them through `barnabas._kernels`, which falls back to their twins."""
