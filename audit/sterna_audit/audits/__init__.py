"""The audits: what they judge (`history`), what they say (`findings`), which there are (`registry`), and a run of them.

Each is a pure function from DataFrames to findings, in plain Spark SQL functions, so that the same code audits a
laptop's folder and a year of a bank. What it proves, and what it takes for proof, stands in its docstring.
"""
